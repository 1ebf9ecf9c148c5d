"""What no child says to its parent, and events that its parent fails over."""

from __future__ import annotations

import pytest
from tests.core.tiers.test_pairs import OPTIONS, Port, event

from accord.core.overlay.needs import Need
from accord.core.overlay.signals import Carried
from accord.core.tiers.messages import (
    MOST_CHANGES,
    MOST_OFFERED,
    MOST_RANGES,
    Attend,
    FromChild,
    Had,
    Serve,
    Up,
    Wants,
)
from accord.core.tiers.parent import Parent


def a_parent(port: Port) -> Parent:
    parent = Parent(1, OPTIONS, port)
    parent.link_up("x", 1)
    parent.receive("x", Attend(1, 1, True), 1)
    return parent


def needs(count: int) -> Wants:
    return Wants(1, 0, count, tuple((str(each), Need(f"room/{each}")) for each in range(count)))


@pytest.mark.parametrize(
    "message",
    [
        Attend(1, 1, True, missing=((1, 1_024),) * (MOST_RANGES + 1)),
        needs(MOST_CHANGES + 1),
        Had(1, 1, 0, tuple(range(MOST_OFFERED + 1))),
    ],
    ids=lambda each: type(each).__name__,
)
def test_more_than_a_child_says_at_once_is_nothing(message: FromChild) -> None:
    port = Port()
    parent = a_parent(port)
    parent.sends.clear()
    parent.receive("x", message, 2)
    assert not parent.sends
    assert not port.needs


def test_as_much_as_a_child_says_is_heard() -> None:
    port = Port()
    parent = a_parent(port)
    parent.sends.clear()
    parent.receive("x", needs(MOST_CHANGES), 2)
    assert len(port.needs) == MOST_CHANGES
    parent.receive("x", Attend(1, 1, True, missing=((1, 2),) * MOST_RANGES), 2)
    assert [type(each) for _, each in parent.sends] == [Serve, Serve]


class FailingPort(Port):
    def take_up(self, event: Carried, *, is_echoed: bool) -> int | None:
        if event.event == 2:
            raise KeyError(event.event)
        return super().take_up(event, is_echoed=is_echoed)


def test_an_event_that_its_parent_fails_over_is_tried_once() -> None:
    port = FailingPort()
    parent = a_parent(port)
    for number in (1, 3, 4):
        parent.receive("x", Up(1, number, event(number)), 2)
    with pytest.raises(KeyError):
        parent.receive("x", Up(1, 2, event(2)), 2)
    parent.room_made(3)
    assert [number for _, number, _ in port.taken] == [1, 3, 4]
    parent.advance(1_000_000)
    (serve,) = [each for _, each in parent.sends if isinstance(each, Serve)][-1:]
    assert (serve.through, serve.settled) == (4, 4), "the child need not keep it"
    parent.check_invariants()
