"""Templates keep what they promise in random worlds; a failure says the seed that replays it.

`scripts/template_runs.py` makes as many as one likes.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from accord.core.channels.channels import SHIPPED
from accord.core.channels.reliable import Reliable
from accord.core.channels.template import COMPLETE, NO_DUPLICATES, SAME_ORDER, Context, Template
from accord.core.channels.total_order import TotalOrder
from accord.core.channels.tree_multicast import SingleSource, Unreliable
from accord.core.channels.trees.tree import Graph
from accord.core.channels.trees.tree_cache import TreeCache
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import TransitEvent
from accord.sim import RunFailedError, check_template
from accord.sim.faults import NodeDown, NodeUp, Timed
from accord.sim.run import Outcome
from accord.sim.template_checks import END_US, LEAVE_US, template_run
from accord.sim.template_scenarios import WAITING, S, TemplateScenario

PROMISING = ("reliable", "single_source", "total_order", "unreliable")


def run(name: str, seed: int, *, is_checking: bool = False) -> Outcome:
    random = Random(f"test {name} {seed}")  # noqa: S311
    world = TemplateScenario(
        loss=random.choice((0.0, 0.1, 0.3, 0.5)),
        nodes=random.randint(3, 6),
        is_checking=is_checking,
    )
    # That in the end nothing is left takes as long again, and is looked at in some of the worlds.
    until_us = END_US if random.random() < 1 / 6 else LEAVE_US
    world = replace(world, options=random.choice(WAITING))
    return template_run(SHIPPED[name], world, seed).run(until_us)


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("name", PROMISING)
def test_templates_keep_their_promises(name: str, seed: int) -> None:
    run(name, seed).check()


@pytest.mark.parametrize("name", PROMISING)
def test_nothing_is_ever_as_it_must_not_be(name: str) -> None:
    """All invariants of all nodes, after each step."""
    run(name, 1_002, is_checking=True).check()


@pytest.mark.parametrize("seed", [4, 8, 12])
def test_total_order_survives_its_sequencers(seed: int) -> None:
    """One node after the other fails for a while; nothing is lost that could be reached."""
    names = [f"n{number}" for number in range(6)]
    faults = [
        timed
        for place, name in enumerate(names)
        for timed in (
            Timed((14 + 4 * place) * S, NodeDown(name, is_silent=bool(place % 2))),
            Timed((17 + 4 * place) * S, NodeUp(name)),
        )
    ]
    world = TemplateScenario(loss=0.2, nodes=6)
    outcome = template_run(TotalOrder, world, seed, faults=faults).run(LEAVE_US).check()
    assert outcome.crashes == 6
    assert sum(each.delivered for each in outcome.channels.values()) > 100


class _Forgetful(Reliable):
    """Leaves some out."""

    def on_ready(self, kept: object, now_us: int) -> None:
        if now_us % 7:
            super().on_ready(kept, now_us)  # type: ignore[arg-type]


class _Repeating(SingleSource):
    promises = (NO_DUPLICATES,)

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        super().on_event(neighbour, event, now_us)
        if self.members.has(event.channel, self.context.name):
            self.context.deliver(event)


class _Hasty(SingleSource):
    """In the order in which it comes."""

    promises = (SAME_ORDER,)


class _Hoarding(Template):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.kept: list[TransitEvent] = []

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],  # noqa: ARG002
        definition: ChannelDefinition,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
    ) -> None:
        self.kept.append(event)

    def retained_state(self) -> dict[str, int]:
        return {"events": len(self.kept)}


class _Lazy(SingleSource):
    """Loses more than links do."""

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        if event.number % 3:
            super().on_event(neighbour, event, now_us)


class _Leaky(Unreliable):
    """Loses a tenth of what links let through."""

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        if (event.number + ord(self.context.name[-1])) % 10:
            super().on_event(neighbour, event, now_us)


class _Cheap(TreeCache):
    """Minimum spanning trees."""

    def _spanner(self, factor: float) -> Graph:  # noqa: ARG002
        return super()._spanner(1_000.0)


class _Winding(Unreliable):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.tree_cache = _Cheap(context.map)


class _Roundabout(SingleSource):
    """Over the rendezvous, although that is longer."""

    def root(self, channel: str) -> str:
        return self.rendezvous.of(channel)


class _Silent(Template):
    promises = (COMPLETE,)


@pytest.mark.parametrize(
    ("template", "finding"),
    [
        (_Forgetful, "all: s"),
        (_Repeating, "once: s"),
        (_Hasty, "same order: no order fits all"),
        (_Hoarding, "left: "),
        (_Lazy, "best effort: "),
        (_Silent, "all: s"),
    ],
)
def test_who_does_not_keep_its_promises_is_found_out(
    template: type[Template], finding: str
) -> None:
    with pytest.raises(RunFailedError, match=finding):
        check_template(template, loss=0.1, nodes=5, seeds=(0, 4, 8))


@pytest.mark.parametrize(
    ("template", "finding"),
    [
        (_Leaky, "best effort: .* delivered, expected"),
        (_Winding, "ways: .* µs from"),
        (_Roundabout, "ways: .* begins at"),
    ],
)
def test_who_loses_a_little_more_or_takes_detours_is_found_out(
    template: type[Template], finding: str
) -> None:
    with pytest.raises(RunFailedError, match=finding):
        check_template(template, loss=0.1, nodes=10, seeds=(12, 20))


class _Raising(SingleSource):
    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        if event.number == 3:
            raise KeyError("beyond repair")
        super().on_event(neighbour, event, now_us)


def test_who_raises_an_exception_is_found_out() -> None:
    with pytest.raises((RunFailedError, KeyError), match="beyond repair"):
        check_template(_Raising, loss=0.0, nodes=4, seeds=(0,))


def test_one_call_checks_a_template() -> None:
    outcomes = check_template(SingleSource, loss=0.3, nodes=4, seeds=range(2))
    assert [outcome.seed for outcome in outcomes] == [0, 1]
    assert all(outcome.is_good for outcome in outcomes)
