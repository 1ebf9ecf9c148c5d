"""The phases of the scenario: what happens in each, and a summary of the consequences.

End-to-end latency of each channel's events, from publication to arrival.

An event belongs to the period in which it arrived, so that events in transit during a change count
as its consequence. After a change, the violation lasts until the last late event was published,
provided that none is late for a while after it: later ones have other causes, such as a busy
machine, and are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from accord.apps.five_cities.cities import (
    DENVER,
    LINKS,
    LOOSE,
    SLOW_LINK,
    SLOW_MS,
    TIGHT,
    CityChannel,
    city_text,
    path_text,
)

QUIET_S: Final = 0.5


@dataclass(frozen=True)
class PhaseMeasurement:
    """Measurements of a channel between two moments.

    `violated_s` is how long after the beginning events were late, 0 if none was; `gap_s` is the
    longest time without any delivery.
    """

    delivered: int
    late: int
    violated_s: float
    gap_s: float
    median_s: float
    longest_s: float


class ChannelLatencies:
    """Latencies of one channel; times are those of one clock, in seconds."""

    def __init__(self, channel: CityChannel) -> None:
        self.channel = channel
        self.duplicates = 0
        self._published_s: list[float] = []
        self._arrived_s: dict[int, float] = {}  # by number, in order of arrival

    @property
    def published(self) -> int:
        return len(self._published_s)

    @property
    def delivered(self) -> int:
        return len(self._arrived_s)

    @property
    def lost(self) -> int:
        return self.published - self.delivered

    @property
    def late(self) -> int:
        return sum(map(self._is_late, self._arrived_s))

    def publish(self, now_s: float) -> int:
        """Record a publication; returns the number of the event."""
        self._published_s.append(now_s)
        return len(self._published_s) - 1

    def receive(self, number: int, now_s: float) -> None:
        assert 0 <= number < len(self._published_s)
        if number in self._arrived_s:
            self.duplicates += 1
        else:
            self._arrived_s[number] = now_s

    def measure(self, from_s: float, until_s: float) -> PhaseMeasurement:
        came = [number for number, at_s in self._arrived_s.items() if from_s <= at_s < until_s]
        late = [number for number in came if self._is_late(number)]
        took_s = sorted(map(self._took_s, came))
        before_s = max((at_s for at_s in self._arrived_s.values() if at_s < from_s), default=None)
        moments_s = [] if before_s is None else [before_s]
        moments_s += [self._arrived_s[number] for number in came]
        return PhaseMeasurement(
            delivered=len(came),
            late=len(late),
            violated_s=self._violated_s(late, from_s),
            gap_s=max((after - before for before, after in pairwise(moments_s)), default=0.0),
            median_s=took_s[len(took_s) // 2] if took_s else 0.0,
            longest_s=took_s[-1] if took_s else 0.0,
        )

    def _violated_s(self, late: list[int], from_s: float) -> float:
        until_s = from_s
        for number in sorted(late):
            at_s = self._published_s[number]
            if at_s > until_s + QUIET_S:
                break
            until_s = max(until_s, at_s)
        return until_s - from_s

    def _took_s(self, number: int) -> float:
        return self._arrived_s[number] - self._published_s[number]

    def _is_late(self, number: int) -> bool:
        return self._took_s(number) * 1_000 > self.channel.max_delay_ms


Kind = Literal["nothing", "slow", "cut", "silent", "kill"]
NodePath = tuple[str, ...]

_LINK: Final = "–".join(map(city_text, SLOW_LINK))


@dataclass(frozen=True)
class CityPhasePlan:
    """A phase; `text` announce what happens, before the consequences are known."""

    name: str
    kind: Kind
    text: str


def phase_plans(stretch: float = 1.0) -> list[CityPhasePlan]:
    slow_ms, usual_ms = round(SLOW_MS * stretch), round(LINKS[SLOW_LINK] * stretch)
    return [
        CityPhasePlan(
            "a · normal",
            "nothing",
            "All links take about as long as light does in a fibre. Each channel goes by the paths "
            "that are most likely to be there, among those that are short enough for it.",
        ),
        CityPhasePlan(
            "b · link slowdown",
            "slow",
            f"{_LINK} takes {slow_ms} ms instead of {usual_ms}: too long for {TIGHT.name}, "
            f"not for {LOOSE.name}.",
        ),
        CityPhasePlan(
            "c · link failure",
            "cut",
            f"{_LINK} fails: its connections break, and new ones are refused.",
        ),
        CityPhasePlan(
            "d · node failure",
            "kill",
            f"The node in {DENVER} is killed, without a word to anybody.",
        ),
    ]


SILENCE: Final = CityPhasePlan(
    "link silent", "silent", f"{_LINK} fails without a sign: everything on it is swallowed."
)


@dataclass(frozen=True)
class CityFlow:
    """The paths of a channel; `meets_requirement` if they meet its requirements."""

    paths: tuple[NodePath, ...]
    delays_ms: tuple[float, ...] = ()
    meets_requirement: bool = True


@dataclass
class ChannelPhase:
    """A channel in one phase; `converged_s` is when its paths last changed, 0 if they did not."""

    channel: CityChannel
    before: CityFlow
    after: CityFlow
    converged_s: float
    measurement: PhaseMeasurement


@dataclass
class CityPhase:
    plan: CityPhasePlan
    seconds: float
    channels: list[ChannelPhase] = field(default_factory=list)


def summarise_phase(phase: CityPhase) -> list[str]:
    return [words for line in phase.channels for words in _summarise_channel(line)]


def _summarise_channel(line: ChannelPhase) -> Iterator[str]:
    name, span = line.channel.name, line.measurement
    gone = [path for path in line.before.paths if path not in line.after.paths]
    new = [path for path in line.after.paths if path not in line.before.paths]
    if not line.before.paths:
        ways = " and ".join(map(path_text, line.after.paths)) or "no path"
        yield f"{name} goes by {ways}."
    elif not (gone or new):
        yield f"{name} stays on its {_paths(len(line.after.paths))}."
    else:
        left = " and ".join(map(path_text, gone)) or "nothing"
        taken = " and ".join(map(path_text, new)) or "nothing"
        when = "" if not line.converged_s else f", settled after {_ms(line.converged_s)}"
        yield f"{name} leaves {left} and takes {taken}{when}."
    if span.late:
        yield (
            f"{name}: {span.late:,} of {span.delivered:,} late, the last published "
            f"{_ms(span.violated_s)} after the change; longest without any: {_ms(span.gap_s)}."
        )
    else:
        kept = [path for path in line.before.paths if path not in gone]
        how = f" Meanwhile it went on by {path_text(kept[0])}." if gone and kept else ""
        most = _ms(span.longest_s)
        yield f"{name}: all {span.delivered:,} in time, none took longer than {most}.{how}"


def _paths(count: int) -> str:
    return "path" if count == 1 else f"{count} paths"


def _ms(seconds: float) -> str:
    return f"{seconds * 1_000:,.0f} ms"
