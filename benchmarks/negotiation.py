"""Quality at one node with many profiles and expectations: from a change to what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import Final

from accord.core.quality.costs import LinearCost
from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.matching import MatchState
from accord.core.quality.messages import Advice, Notice
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.profiles import Capability, Profile
from benchmarks.measure import no_collection
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "One node with as many profiles as expectations. A profile has a rate, a confidence and a "
    "precision, each within a random range at a random value, for a price. A third of the "
    "expectations is of the rate alone, a third of rate and confidence, a third of all three. "
    "They are all on one channel, or spread evenly over a hundred. Publishers do as advised. "
    "Changes come one at a time: the time of a single call, from the change to the notices, "
    "advice among them; beside it until nothing is left to be told by further calls."
)
_SIZES: Final = (100, 1_000, 10_000)
_LAYOUTS: Final = (("one", 1), ("a hundred", 100))
_PROPERTIES: Final = ("rate", "confidence", "precision")
_AIM_MS: Final = 2.0
_STEP_US: Final = 1_000
_ADVISED: Final = "any, with advice"


@dataclass
class Times:
    """Seconds each: of the call by CPU and by the wall clock, and until all was told by CPU."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    told: list[float] = field(default_factory=list)


@dataclass
class Measured:
    layout: str
    size: int
    skyline: int  # the largest
    states: dict[MatchState, int]
    times: dict[str, Times]


def run(options: Options) -> list[Table]:
    sizes = _SIZES[:-1] if options.is_quick else _SIZES
    measured: list[Measured] = []
    for layout, channels in _LAYOUTS:
        for size in sizes:
            progress(f"negotiation: {size:,} profiles and expectations, channels: {layout}")
            with no_collection():
                measured.append(measure(layout, size, min(channels, size), options.changes))
    # What is measured at the publisher's socket, with a live node, is a table of its own here.
    return [_changes(measured), _worlds(measured)]


class World:
    """A node with its publishers, who do as advised."""

    def __init__(self, size: int, channels: int, seed: int = 7) -> None:
        self.random = Random(seed)
        self.channels = channels
        self.quality = Negotiation("node")
        self.now_us = 0
        self.profiles: dict[tuple[str, str], Profile] = {}
        self._count = 0
        for place in range(size):
            profile = self.draw_profile(f"p{place}", f"c{place % channels}")
            self.profiles[profile.publisher, profile.channel] = profile
            self.quality.register_profile(profile, now_us=0)
        for place in range(size):
            self.quality.register(self.draw_expectation(place), now_us=0)
            if place % 100 == 0:
                self.settle()
        self.settle()

    def draw_profile(self, publisher: str, channel: str) -> Profile:
        capabilities = tuple(self._draw_capability(name) for name in _PROPERTIES)
        return Profile(publisher=publisher, channel=channel, capabilities=capabilities)

    def _draw_capability(self, name: str) -> Capability:
        best = self.random.uniform(20.0, 100.0)
        price = LinearCost(0.0, self.random.uniform(0.01, 0.1))
        return Capability(name, 0.0, best, self.random.uniform(0.0, best), price)

    def draw_expectation(self, place: int) -> Expectation:
        names = _PROPERTIES[: 1 + place % 3]
        wanted = [PropertyRequirement(name, self.random.uniform(10.0, 100.0)) for name in names]
        return self._expectation(f"c{place % self.channels}", wanted)

    def draw_demanding(self, place: int) -> Expectation:
        """What one of the best could give, if it were advised to."""
        keys = self.random.sample(list(self.profiles), 20)
        best = max((self.profiles[key] for key in keys), key=_promise)
        wanted = [
            PropertyRequirement(each.property, float(each.upper) * self.random.uniform(0.9, 1.0))
            for each in best.capabilities[: 2 + place % 2]
        ]
        return self._expectation(best.channel, wanted)

    def _expectation(self, channel: str, wanted: list[PropertyRequirement]) -> Expectation:
        self._count += 1
        return Expectation(
            id=f"x{self._count}",
            subscription=f"s{self._count}",
            channel=channel,
            requirements=tuple(wanted),
            utility=self.random.uniform(1.0, 10.0),
        )

    def settle(self) -> None:
        """Let publishers follow, and everything happen that is due."""
        notices: list[Notice] = []
        while True:
            self.now_us += _STEP_US
            while self.quality.next_due_us() <= self.now_us:
                notices += self.quality.advance(now_us=self.now_us)
            if not any(self.follow(notices)):
                return
            notices = []

    def follow(self, notices: Iterable[Notice]) -> Iterable[bool]:
        for notice in notices:
            if isinstance(notice, Advice):
                update = self.followed(notice)
                self.quality.update_profile(update, now_us=self.now_us)
                yield True

    def followed(self, advice: Advice) -> Profile:
        """The profile of a publisher after it did as advised."""
        profile = self.profiles[advice.publisher, advice.channel]
        capabilities = tuple(
            Capability(each.property, each.lower, each.upper, advice.target, each.cost)
            if each.property == advice.property
            else each
            for each in profile.capabilities
        )
        return self.changed(profile, capabilities)

    def changed(self, profile: Profile, capabilities: tuple[Capability, ...]) -> Profile:
        changed = Profile(
            publisher=profile.publisher, channel=profile.channel, capabilities=capabilities
        )
        self.profiles[profile.publisher, profile.channel] = changed
        return changed

    def weakened(self) -> Profile | None:
        """One that somebody relies on, at values that are not good enough any more."""
        relied = [key for key in self.profiles if self.quality.usage(*key)[0]]
        if not relied:
            return None
        profile = self.profiles[self.random.choice(relied)]
        capabilities = tuple(
            Capability(c.property, c.lower, c.upper, float(c.current) / 2, c.cost)
            for c in profile.capabilities
        )
        return self.changed(profile, capabilities)


def _promise(profile: Profile) -> float:
    return sum(float(each.upper) for each in profile.capabilities)


def measure(layout: str, size: int, channels: int, changes: int) -> Measured:
    world = World(size, channels)
    meter = _Meter(world)
    for step in range(changes):
        meter.expect(step)
        meter.drift()
        meter.weaken()
    groups = world.quality.supersets.groups.values()
    states = [
        world.quality.report(held.expectation.id).state for held in world.quality.expectations
    ]
    return Measured(
        layout=layout,
        size=size,
        skyline=max(len(group.skyline.band) for group in groups),
        states={state: states.count(state) for state in MatchState},
        times=meter.times,
    )


class _Meter:
    """Makes changes, and takes their times."""

    def __init__(self, world: World) -> None:
        self.times: dict[str, Times] = {}
        self._world = world
        self._quality = world.quality

    def expect(self, step: int) -> None:
        """Somebody wants for a while what hardly anybody could give."""
        expectation = self._world.draw_demanding(step)
        now_us = self._world.now_us
        register = partial(self._quality.register, expectation, now_us=now_us)
        self._follow(self._time("expectation registered", register))
        revoke = partial(self._quality.revoke, expectation.id, now_us=self._world.now_us)
        self._follow(self._time("expectation revoked", revoke))

    def drift(self) -> None:
        key = self._world.random.choice(list(self._world.profiles))
        drawn = self._world.profiles[key] = self._world.draw_profile(*key)
        self._update("profile updated at random", drawn)

    def weaken(self) -> None:
        worse = self._world.weakened()
        if worse is not None:
            self._update("profile relied on gets worse", worse)

    def _update(self, name: str, profile: Profile) -> None:
        update = partial(self._quality.update_profile, profile, now_us=self._world.now_us)
        self._follow(self._time(name, update))

    def _follow(self, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Advice):
                profile = self._world.followed(notice)
                update = partial(self._quality.update_profile, profile, now_us=self._world.now_us)
                self._time("profile updated as advised", update)
        self._world.settle()

    def _time(self, name: str, change: Callable[[], list[Notice]]) -> list[Notice]:
        wall, cpu = perf_counter(), process_time()
        notices = change()
        spent_cpu, spent_wall = process_time() - cpu, perf_counter() - wall
        has_advice = any(isinstance(each, Advice) for each in notices)
        while self._quality.next_due_us() <= self._world.now_us:
            notices += self._quality.advance(now_us=self._world.now_us)
        told = process_time() - cpu
        for each in (name, _ADVISED) if has_advice else (name,):
            times = self.times.setdefault(each, Times())
            times.cpu.append(spent_cpu)
            times.wall.append(spent_wall)
            times.told.append(told)
        return notices


def _changes(measured: Sequence[Measured]) -> Table:
    columns = ["channels", "size", "change", "times", "CPU p50 ms", "p95", "most", "wall p50 ms",
               "p95", "most", "all told p95", "most", "aim"]  # fmt: skip
    table = Table("One change until it is decided and told", columns)
    for each in measured:
        for change, times in sorted(each.times.items()):
            if len(times.cpu) < 20:
                continue
            p95_ms = quantiles(times.cpu, n=20)[-1] * 1e3
            verdict = "met" if p95_ms < _AIM_MS else "missed"
            table.add(
                each.layout,
                number(each.size),
                change,
                number(len(times.cpu)),
                *_ms(times.cpu),
                *_ms(times.wall),
                *_ms(times.told)[1:],
                f"p95 < {_AIM_MS:g} ms: {verdict}",
            )
    table.notes = [
        "CPU, wall: of the call that makes the change; all told: CPU until no call is due.",
        f"{_ADVISED}: those of the others in which some publisher is advised.",
    ]
    return table


def _ms(times: list[float]) -> tuple[str, str, str]:
    p95 = quantiles(times, n=20)[-1]
    return (
        significant(median(times) * 1e3),
        significant(p95 * 1e3),
        significant(max(times) * 1e3),
    )


def _worlds(measured: Sequence[Measured]) -> Table:
    columns = ["channels", "size", "largest skyline", "satisfied", "satisfiable", "unsatisfied"]
    table = Table("What was there", columns)
    for each in measured:
        table.add(
            each.layout,
            number(each.size),
            number(each.skyline),
            *(number(each.states[state]) for state in sorted(MatchState, reverse=True)),
        )
    return table
