"""Delivered quality as sections of tables, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from accord.core.queries.report import DeliveredQuality, PredicateUse, Report
from accord.terminal.amounts import (
    clock_text,
    count_text,
    duration_text,
    moment_text,
    rate_text,
    size_text,
)
from accord.terminal.rows import NOTHING, Column, Count, Table, count, milliseconds, table

SEVERAL: Final = "(several)"
NOBODY: Final = "(none)"


def headline(report: Report) -> str:
    since, until = moment_text(report.since_ms), moment_text(report.until_ms)
    spent = duration_text((report.until_ms - report.since_ms) / 1_000)
    of = "" if report.channel == "#" else f", channels {report.channel}"
    return f"{since} to {until} ({spent}){of}"


def totals(report: Report) -> list[tuple[str, str]]:
    """Names and values."""
    total = report.totals
    kinds = ("replaced", "expired", "shed", "refused")
    lost = ", ".join(f"{getattr(total, each):,} {each}" for each in kinds if getattr(total, each))
    return [
        ("events", f"{total.events:,}, each counted once for each destination"),
        ("arrived", _arrived(total)),
        ("in time", share_text(total.in_time)),
        ("not arrived", lost or "none"),
        ("latency", _percentiles(total.latency_p50_ms, total.latency_p95_ms, total.latency_p99_ms)),
        (
            "queueing",
            _percentiles(total.queueing_p50_ms, total.queueing_p95_ms, total.queueing_p99_ms),
        ),
        ("kept", f"{count_text(report.kept, 'event')}, {size_text(report.kept_bytes)}"),
    ]


def share_text(share: float | None) -> str:
    """Never rounded to 0 or 100 %."""
    if share is None:
        return NOTHING
    percent = f"{share * 100:.1f}"
    if share < 1 and percent == "100.0":
        return "> 99.9 %"
    if share > 0 and percent == "0.0":
        return "< 0.1 %"
    return f"{percent.removesuffix('.0')} %"


def time_text(time_ms: float | None) -> str:
    if time_ms is None:
        return NOTHING
    return milliseconds(time_ms)


def condition_text(used: PredicateUse) -> str:
    return used.where or (f"xpath: {used.xpath}" if used.xpath else "(all)")


def _arrived(total: DeliveredQuality) -> str:
    also = [f"{total.late:,} late"] if total.late else []
    also += [f"{total.shaped:,} made smaller"] if total.shaped else []
    among = f", among them {' and '.join(also)}" if also else ""
    rates = f"{rate_text(total.rate_hz)}/s, {size_text(total.bytes_per_s)}/s"
    return f"{total.arrived:,}{among}; {rates}"


def _percentiles(*values_ms: float | None) -> str:
    if all(value is None for value in values_ms):
        return NOTHING
    names = ("half", "95 %", "99 %")
    pairs = zip(names, values_ms, strict=True)
    return ", ".join(f"{name} within {time_text(value)}" for name, value in pairs)


def _rate(rate_hz: float) -> str:
    return "< 0.1" if 0 < rate_hz < 0.05 else rate_text(rate_hz)


@dataclass(frozen=True, slots=True)
class Section:
    """`remark` is shown below; or in place of the table, if there are no rows."""

    title: str
    table: Table
    remark: str = ""


def _or_nothing(name: str) -> str:
    return name or NOTHING


def _or_several(name: str) -> str:
    return name or SEVERAL


def _or_nobody(name: str) -> str:
    return name or NOBODY


Channel = Annotated[str, Column("channel", _or_several)]
Rate = Annotated[float, Column("rate/s", _rate)]
InTime = Annotated[float | None, Column("in time", share_text)]
P50 = Annotated[float | None, Column("p50", milliseconds)]
P95 = Annotated[float | None, Column("p95", milliseconds)]


class QualityRow(msgspec.Struct, frozen=True):
    name: str
    events: int
    rate_hz: Rate
    in_time: InTime
    latency_p50_ms: P50
    latency_p95_ms: P95
    latency_p99_ms: Annotated[float | None, Column("p99", milliseconds, weight=0)]
    late: Annotated[int, Column(unit=count, weight=0)]
    shaped: Annotated[int, Column(unit=count, weight=0)]
    undelivered: Annotated[int, Column("lost", count)]


class LossRow(msgspec.Struct, frozen=True):
    outcome: str
    cause: Annotated[str, Column(unit=_or_nothing)]
    channel: Channel
    events: int
    share: Annotated[float | None, Column(unit=share_text)]
    clients: Annotated[int, Column(weight=0)]
    last_ms: Annotated[int, Column("last", clock_text, weight=0)]


class SlowRow(msgspec.Struct, frozen=True):
    client: Annotated[str, Column(unit=_or_nobody)]
    channel: Channel
    latency_p95_ms: P95
    latency_p50_ms: P50
    queueing_p95_ms: Annotated[float | None, Column("of it queued", milliseconds, weight=0)]
    in_time: InTime
    events: int


class PredicateRow(msgspec.Struct, frozen=True):
    channel: str
    predicate: str
    clients: int
    matched: int
    of: Annotated[int, Column(weight=0)]
    share: Annotated[float | None, Column(unit=share_text)]
    rate_hz: Rate


class SourceRow(msgspec.Struct, frozen=True):
    publisher: Annotated[str, Column(unit=_or_nobody)]
    channel: Channel
    events: int
    rate_hz: Rate
    bytes: Annotated[int, Column(unit=size_text, weight=0)]
    delivered: Count
    destinations: Annotated[int, Column("to clients", count, weight=0)]


def sections(report: Report) -> Iterator[Section]:
    for title, name, found, unnamed in (
        ("Channels", "channels", report.channels, SEVERAL),
        ("Clients", "clients", report.clients, NOBODY),
        ("Nodes", "nodes", report.nodes if len(report.nodes) > 1 else None, NOBODY),
    ):
        if found is not None:
            rows = (msgspec.structs.replace(each, name=each.name or unnamed) for each in found)
            drawn = table(QualityRow, rows, title=name.removesuffix("s"))
            yield Section(title, drawn, _remark(report, name, drawn, "nothing was delivered"))
    drawn = table(LossRow, report.losses)
    remark = _remark(report, "losses", drawn, "everything arrived, whole and in time")
    yield Section("What did not arrive as it should, and why", drawn, remark)
    drawn = table(SlowRow, report.slow)
    remark = _remark(report, "slow", drawn, "no latencies are known")
    yield Section("Slowest subscriptions", drawn, remark)
    yield _predicates(report)
    drawn = table(SourceRow, report.sources)
    yield Section("Sources", drawn, _remark(report, "sources", drawn, "nothing was kept"))


def _predicates(report: Report) -> Section:
    rows = (
        PredicateRow(
            each.channel,
            condition_text(each),
            each.clients,
            each.matched,
            each.seen,
            each.selectivity,
            each.rate_hz,
        )
        for each in report.predicates
    )
    drawn = table(PredicateRow, rows)
    remark = _remark(report, "predicates", drawn, "none is registered, or nothing was kept")
    if report.predicates_unmeasured:
        more = f"{count_text(report.predicates_unmeasured, 'more predicate')} not measured"
        remark = f"{remark}; {more}" if remark else more
    return Section("Busiest predicates", drawn, remark)


def _remark(report: Report, name: str, drawn: Table, empty: str) -> str:
    if not drawn.rows:
        return empty
    return f"the first {len(drawn.rows)} only" if name in report.shortened else ""
