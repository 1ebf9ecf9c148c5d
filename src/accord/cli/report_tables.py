"""A report as tables of text, shared by terminal and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from accord.cli.quantities import (
    count_text,
    duration_text,
    latency_text,
    rate_text,
    size_text,
)
from accord.cli.table import NOTHING, Table, figures
from accord.core.queries.report import (
    DeliveredQuality,
    Loss,
    NamedQuality,
    PairQuality,
    PredicateUse,
    Report,
    SourceUse,
)

SEVERAL: Final = "(several)"
NOBODY: Final = "(none)"


@dataclass(frozen=True, slots=True)
class Section:
    """`remark` is shown below; or in place of the table, if there are no rows."""

    title: str
    table: Table
    remark: str = ""


_FIGURES: Final = (
    *figures("events", "rate/s", "in time", "p50", "p95"),
    *figures("p99", "late", "shaped", weight=0),
    *figures("lost"),
)


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


def sections(report: Report) -> Iterator[Section]:
    yield _qualities(report, "Channels", "channels", report.channels, SEVERAL)
    yield _qualities(report, "Clients", "clients", report.clients, NOBODY)
    if len(report.nodes) > 1:
        yield _qualities(report, "Nodes", "nodes", report.nodes, NOBODY)
    yield _losses(report, report.losses)
    yield _slow(report, report.slow)
    yield _predicates(report, report.predicates)
    yield _sources(report, report.sources)


def moment_text(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1_000).astimezone():%Y-%m-%d %H:%M:%S}"


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
    return latency_text(time_ms / 1_000) if time_ms else "0 ms"


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


def _figures(quality: DeliveredQuality) -> tuple[str, ...]:
    return (
        f"{quality.events:,}",
        _rate(quality.rate_hz),
        share_text(quality.in_time),
        time_text(quality.latency_p50_ms),
        time_text(quality.latency_p95_ms),
        time_text(quality.latency_p99_ms),
        _count(quality.late),
        _count(quality.shaped),
        _count(quality.undelivered),
    )


def _qualities(
    report: Report, title: str, name: str, found: Sequence[NamedQuality], unnamed: str
) -> Section:
    table = Table(title.lower().removesuffix("s"), *_FIGURES)
    for each in found:
        table.add_row(each.name or unnamed, *_figures(each))
    return Section(title, table, _remark(report, name, table, "nothing was delivered"))


def _losses(report: Report, found: Sequence[Loss]) -> Section:
    table = Table(
        "outcome",
        "cause",
        "channel",
        *figures("events", "share"),
        *figures("clients", "last", weight=0),
    )
    for each in found:
        table.add_row(
            each.outcome,
            each.cause or NOTHING,
            each.channel or SEVERAL,
            f"{each.events:,}",
            share_text(each.share),
            f"{each.clients:,}",
            f"{datetime.fromtimestamp(each.last_ms / 1_000).astimezone():%H:%M:%S}",
        )
    remark = _remark(report, "losses", table, "everything arrived, whole and in time")
    return Section("What did not arrive as it should, and why", table, remark)


def _slow(report: Report, found: Sequence[PairQuality]) -> Section:
    table = Table(
        "client",
        "channel",
        *figures("p95", "p50"),
        *figures("of it queued", weight=0),
        *figures("in time", "events"),
    )
    for each in found:
        table.add_row(
            each.client or NOBODY,
            each.channel or SEVERAL,
            time_text(each.latency_p95_ms),
            time_text(each.latency_p50_ms),
            time_text(each.queueing_p95_ms),
            share_text(each.in_time),
            f"{each.events:,}",
        )
    remark = _remark(report, "slow", table, "no latencies are known")
    return Section("Slowest subscriptions", table, remark)


def _predicates(report: Report, found: Sequence[PredicateUse]) -> Section:
    table = Table(
        "channel",
        "predicate",
        *figures("clients", "matched"),
        *figures("of", weight=0),
        *figures("share", "rate/s"),
    )
    for each in found:
        table.add_row(
            each.channel,
            condition_text(each),
            f"{each.clients:,}",
            f"{each.matched:,}",
            f"{each.seen:,}",
            share_text(each.selectivity),
            _rate(each.rate_hz),
        )
    remark = _remark(report, "predicates", table, "none is registered, or nothing was kept")
    if report.predicates_unmeasured:
        more = f"{count_text(report.predicates_unmeasured, 'more predicate')} not measured"
        remark = f"{remark}; {more}" if remark else more
    return Section("Busiest predicates", table, remark)


def _sources(report: Report, found: Sequence[SourceUse]) -> Section:
    table = Table(
        "publisher",
        "channel",
        *figures("events", "rate/s"),
        *figures("bytes", weight=0),
        *figures("delivered"),
        *figures("to clients", weight=0),
    )
    for each in found:
        table.add_row(
            each.publisher or NOBODY,
            each.channel or SEVERAL,
            f"{each.events:,}",
            _rate(each.rate_hz),
            size_text(each.bytes),
            _count(each.delivered),
            _count(each.destinations),
        )
    return Section("Sources", table, _remark(report, "sources", table, "nothing was kept"))


def _remark(report: Report, name: str, table: Table, empty: str) -> str:
    if not table.rows:
        return empty
    return f"the first {len(table.rows)} only" if name in report.shortened else ""


def _count(count: int) -> str:
    return f"{count:,}" if count else NOTHING


def _rate(rate_hz: float) -> str:
    return "< 0.1" if 0 < rate_hz < 0.05 else rate_text(rate_hz)
