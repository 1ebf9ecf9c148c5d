"""The phases of the scenario: what happens in each, and a summary of the consequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
from accord.apps.five_cities.meters import PhaseMeasurement

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
