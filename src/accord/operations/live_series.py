"""The live set of series: names and summaries of what is measured."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accord.core.monitoring.series import Summary, unit_of_series
from accord.operations.live_set import Watch, live_set, sampled
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts, need
from accord.operations.status import visible_series

MAX_NAMES_BYTES = 131_072  # of all rows together: names are external input

Name = Annotated[str, Meta(max_length=65_535)]


class WatchSeries(Watch, frozen=True, kw_only=True, tag="series"):
    prefix: Annotated[str, Meta(max_length=65_535, description="What their names begin with.")] = ""
    names: Annotated[
        tuple[Name, ...], Meta(max_length=500, description="Only these, where there are any.")
    ] = ()
    search: Annotated[
        str, Meta(max_length=1_000, description="A part of their names, in any case.")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=500, description="How many at most.")] = 200


class SeriesRow(Struct, frozen=True, kw_only=True):
    """The last value of a series, and its statistics over the last 10 s."""

    last: float
    last_ms: int
    count: int
    mean: float | None
    deviation: float | None
    trend: float | None  # per second
    unit: str | None


class SeriesState(Struct, frozen=True, kw_only=True):
    """Series by name: `total` that the asker may see, `matching` of those, some in `rows`."""

    total: int
    matching: int
    rows: dict[str, SeriesRow]


@live_set(changes_with=sampled)
def series(node: NodePorts, ask: WatchSeries, asker: Asker) -> SeriesState:
    """What is measured: last values, mean, deviation and trend over 10 s."""
    ledger = need(node.ledger, "ledger")
    names = visible_series(ledger.series_names(""), asker)
    wanted = ask.search.casefold()
    chosen = frozenset(ask.names)
    matching = [
        name
        for name in names
        if name.startswith(ask.prefix)
        and (not chosen or name in chosen)
        and (not wanted or wanted in name.casefold())
    ]
    rows: dict[str, SeriesRow] = {}
    room = MAX_NAMES_BYTES
    for name in matching[: ask.limit]:
        room -= len(name)
        if room < 0:
            break
        if (summary := ledger.summary(name)) is not None:
            rows[name] = _row(summary)
    return SeriesState(total=len(names), matching=len(matching), rows=rows)


def _row(summary: Summary) -> SeriesRow:
    return SeriesRow(
        last=summary.last,
        last_ms=summary.last_ms,
        count=summary.count,
        mean=summary.mean,
        deviation=summary.deviation,
        trend=summary.trend,
        unit=unit_of_series(summary.name),
    )
