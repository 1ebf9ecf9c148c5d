"""Five cities: how long events come too late when a link or a node on their path fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from accord.apps.five_cities.cities import SLOW_LINK, TIGHT
from accord.apps.five_cities.network import FiveCities
from accord.apps.five_cities.phases import (
    SILENCE,
    ChannelPhase,
    CityPhase,
    CityPhasePlan,
    Kind,
    phase_plans,
)
from accord.apps.five_cities.scenario import FiveCitiesScenario
from benchmarks.options import Options, progress
from benchmarks.report import Table, number

ABOUT: Final = (
    "Five nodes as processes, links between them that take 10 to 30 ms, two channels of 200 "
    "events/s each with QoS 1. The first table has one change at a time, each on a fresh network "
    f"where {TIGHT.name} goes over the link or the node concerned: events are late when they take "
    f"more than {TIGHT.max_delay_ms} ms. Violated is how long after the change events were "
    "published that came too late; the gap is the longest time without any delivery; settled is "
    "when its paths were as they stay. The second table is the whole story of "
    "`accord demo five-cities`."
)
PING_MS: Final = 100
AIM_MS: Final = 3 * PING_MS + 200
_BEFORE_S: Final = 2.0
_AFTER_S: Final = 4.0
_PHASE_S: Final = 6.0
_TRIES: Final = 5
_NAMES: Final[dict[Kind, str]] = {
    "slow": "link slows down",
    "cut": "link is cut",
    "silent": "link falls silent",
    "kill": "node is killed",
}


@dataclass(frozen=True)
class Run:
    """One change, on one network; times in ms."""

    late: int
    violated_ms: float
    gap_ms: float
    longest_ms: float
    settled_ms: float
    lost: int
    twice: int


def run(options: Options) -> list[Table]:
    rounds = 1 if options.is_quick else min(3, options.rounds)
    changes = Table(
        f"{TIGHT.name} after one change, medians of {rounds} (most)",
        ["change", "paths", "late", "violated ms", "gap ms", "longest ms", "settled ms",
         "lost", "twice"],
    )  # fmt: skip
    known = {act.kind: act for act in (*phase_plans(), SILENCE)}
    for kind, words in _NAMES.items():
        for paths in (2, 1):
            progress(f"five_cities: {words}, {paths} {'path' if paths == 1 else 'paths'}")
            runs = [asyncio.run(_change(known[kind], paths)) for _ in range(rounds)]
            _add(changes, words, paths, runs)
    changes.notes.append(
        f"Pings every {PING_MS} ms; the aim is at most {AIM_MS} ms (three pings and 200 ms)."
    )
    return [changes, *(_story(paths) for paths in (2, 1))]


async def _change(act: CityPhasePlan, paths: int) -> Run:
    """On a busy machine paths may have changed before: then it is nothing to do with the change."""
    for _ in range(_TRIES):
        play = await _play([phase_plans()[0], act], paths, [_BEFORE_S, _AFTER_S])
        line = next(each for each in play.phases[-1].channels if each.channel.name == TIGHT.name)
        if any(path[:2] == SLOW_LINK for path in line.before.paths):
            return _run(play, line)
    raise AssertionError(f"{TIGHT.name} never goes over {' and '.join(SLOW_LINK)} here")


def _run(play: FiveCitiesScenario, line: ChannelPhase) -> Run:
    return Run(
        late=line.measurement.late,
        violated_ms=line.measurement.violated_s * 1e3,
        gap_ms=line.measurement.gap_s * 1e3,
        longest_ms=line.measurement.longest_s * 1e3,
        settled_ms=line.converged_s * 1e3,
        lost=sum(meter.lost for meter in play.meters.values()),
        twice=sum(meter.duplicates for meter in play.meters.values()),
    )


async def _play(
    story: Sequence[CityPhasePlan], paths: int, seconds: Sequence[float]
) -> FiveCitiesScenario:
    net = FiveCities(paths=paths, ping_ms=PING_MS)
    async with net:
        play = FiveCitiesScenario(
            net.urls,
            net,
            paths=paths,
            channels=net.channels,
            on_phase_start=lambda _: None,
            on_phase_end=lambda _: None,
        )
        await play.run(story, seconds)
    return play


def _add(table: Table, words: str, paths: int, runs: Sequence[Run]) -> None:
    table.add(
        words,
        str(paths),
        _both([run.late for run in runs]),
        _both([run.violated_ms for run in runs]),
        _both([run.gap_ms for run in runs]),
        _both([run.longest_ms for run in runs]),
        _both([run.settled_ms for run in runs]),
        number(sum(run.lost for run in runs)),
        number(sum(run.twice for run in runs)),
    )


def _both(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({max(values):,.0f})"


def _story(paths: int) -> Table:
    progress(f"five_cities: the whole story, {paths} {'path' if paths == 1 else 'paths'}")
    table = Table(
        f"The whole story, {paths} {'path' if paths == 1 else 'paths'} each",
        ["phase", "channel", "delivered", "late", "violated ms", "gap ms", "median ms",
         "longest ms"],
    )  # fmt: skip
    story = phase_plans()
    play = asyncio.run(_play(story, paths, [_PHASE_S] * len(story)))
    for phase in play.phases:
        _add_phase(table, phase)
    for meter in play.meters.values():
        table.notes.append(
            f"{meter.channel.name}: published {meter.published:,}, delivered "
            f"{meter.delivered:,}, late {meter.late:,}, twice {meter.duplicates:,}."
        )
    return table


def _add_phase(table: Table, phase: CityPhase) -> None:
    for line in phase.channels:
        span = line.measurement
        table.add(
            phase.plan.name,
            line.channel.name,
            number(span.delivered),
            number(span.late),
            number(span.violated_s * 1e3),
            number(span.gap_s * 1e3),
            number(span.median_s * 1e3),
            number(span.longest_s * 1e3),
        )
