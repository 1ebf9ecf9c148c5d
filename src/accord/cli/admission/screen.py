"""Output of `accord admission`: the poset of advertised filters, resources, refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.quantities import count_text, rate_text
from accord.cli.screen import safe
from accord.cli.table import Table, figures
from accord.core.admission.status import (
    AdmissionStatus,
    DemandStatus,
    FilterStatus,
    PoolStatus,
    PublisherStatus,
    RefusalStatus,
    ReportedInterval,
)
from accord.core.broker.subscription_admission import amount_text

MAX_ROWS: Final = 60
_DEEPEST: Final = 20
_OFF: Final = (
    "admission is off: every subscription is accepted. To refuse those that exceed the resources, "
    'set mode = "enforce" under [admission] in accord.toml ("report" only reports them)'
)

_HERE: Final = "only the parents of this node know the advertisements of other nodes"
_NOTHING: Final = "nothing is advertised, so no subscription needs resources"


def draw_admission(status: AdmissionStatus, *, rows: int = MAX_ROWS) -> Group:
    """Draw all parts, with at most `rows` lines each."""
    parts: list[RenderableType] = [_headline(status)]
    if status.mode == "off":
        return Group(*parts, Text(_OFF, "yellow"))
    lines = list(_tree(status.filters))
    for title, drawn, total in (
        ("advertised", _filters(lines[:rows]), len(lines)),
        ("publishers", _publishers(status.publishers[:rows]), len(status.publishers)),
        ("resources", _pools(status.pools[:rows]), len(status.pools)),
        ("refused lately", _lately(status.lately[:rows]), len(status.lately)),
    ):
        if total:
            parts += [Text(), Text(title, "bold"), drawn]
        if total > rows:
            parts.append(Text(f"… and {total - rows:,} more (--json has all)", "dim"))
    if status.filters_total > len(status.filters):
        more = status.filters_total - len(status.filters)
        parts.append(Text(f"… and {more:,} more filters", "dim"))
    if status.is_secondary or not status.filters:
        parts += [Text(), Text(_HERE if status.is_secondary else _NOTHING, "dim")]
    return Group(*parts)


def draw_need(need: DemandStatus) -> Group:
    table = Table("", *figures("at least", "at most"))
    for name, between, noun in (
        ("events/s, by what intersects it", need.rate_hz, "rate"),
        ("events/s, as in the paper", need.paper_rate_hz, "rate"),
        ("advertisements, by what intersects it", need.count, "count"),
        ("advertisements, as in the paper", need.paper_count, "count"),
    ):
        table.add_row(name, *_between(between, noun))
    estimate = (
        "not known" if need.estimate_hz is None else f"{rate_text(need.estimate_hz)} events/s"
    )
    bandwidth = amount_text("bandwidth", need.asked_hz * need.event_bytes * 8)
    asked = (
        f"asks for {rate_text(need.asked_hz)} events/s of {need.event_bytes:,} bytes "
        f"({bandwidth}), guarantee {need.guarantee}"
    )
    if need.is_secondary:
        asked = f"rates are of what is advertised at {safe(need.node)}: {_HERE}"
    return Group(
        _verdict(need), Text(), table, Text(f"measured: {estimate}", "dim"), Text(asked, "dim")
    )


def _verdict(need: DemandStatus) -> Text:
    what = safe(f"{need.channel} WHERE {need.where}" if need.where else need.channel)
    if need.mode == "off":
        return Text.assemble((what, "bold"), f"  accepted: admission is off at {safe(need.node)}")
    if need.state == "admitted":
        share = "" if need.share >= 1 else f", by {100 * need.share:.0f} % of the nodes on its path"
        return Text.assemble((what, "bold"), "  ", ("would be admitted", "green"), share)
    problems = safe("; ".join(need.problems)) or "no answer in time"
    return Text.assemble((what, "bold"), "  ", ("would be refused", "red"), f": {problems}")


def _headline(status: AdmissionStatus) -> Text:
    parts = [f"mode {status.mode}"]
    if status.mode != "off":
        parts += [
            f"guarantee {status.guarantee}",
            f"basis {status.basis}",
            count_text(status.advertisements, "advertisement"),
            f"{count_text(status.subscriptions, 'subscription')} promised",
            f"{sum(status.refused.values()):,} refused",
        ]
    return Text.assemble((safe(status.node), "bold"), "  ", " · ".join(parts))


def _tree(filters: Sequence[FilterStatus]) -> Iterator[tuple[int, FilterStatus, bool]]:
    """Depth first; a filter below several others is shown once in full, then only named."""
    is_below = {place for line in filters for place in line.below}
    shown: set[int] = set()

    def walk(place: int, depth: int) -> Iterator[tuple[int, FilterStatus, bool]]:
        is_again = place in shown
        shown.add(place)
        yield depth, filters[place], is_again
        if not is_again and depth < _DEEPEST:
            for each in filters[place].below:
                yield from walk(each, depth + 1)

    for place in range(len(filters)):
        if place not in is_below:
            yield from walk(place, 0)


def _filters(lines: Sequence[tuple[int, FilterStatus, bool]]) -> Table:
    table = Table("filter", *figures("rate", "count", "own"))
    for depth, line, is_again in lines:
        where = f" WHERE {line.where}" if line.where else ""
        name = f"{'  ' * depth}{safe(line.channel)}{safe(where)}"
        own = f"{rate_text(line.own_rate_hz)}/s by {line.own_count:,}"
        if is_again:
            table.add_row(Text(name, "dim"), "", "", Text("see above", "dim"))
        else:
            table.add_row(name, f"{rate_text(line.rate_hz)}/s", f"{line.count:,}", own)
    return table


def _publishers(lines: Sequence[PublisherStatus]) -> Table:
    table = Table("client", "advertises", *figures("rate", "passed", "beyond"))
    for line in lines:
        beyond = Text(f"{line.limited:,}", "yellow" if line.limited else "dim")
        rate = f"{rate_text(line.rate_hz)}/s"
        table.add_row(line.client, line.name, rate, f"{line.passed:,}", beyond)
    return table


def _pools(lines: Sequence[PoolStatus]) -> Table:
    table = Table("node", "resource", *figures("there is", "promised", "used", "free"))
    for line in lines:
        name = f"{line.resource} of {line.of}" if line.of else line.resource
        there, promised, used, free = (
            "?" if each is None else amount_text(line.resource, each)
            for each in (line.capacity, line.promised, line.used, line.free)
        )
        style = "red" if line.free is not None and line.free <= 0 else ""
        table.add_row(line.node, name, there, promised, used, Text(free, style))
    return table


def _lately(lines: Sequence[RefusalStatus]) -> Table:
    table = Table("time", "client", "filter", "why")
    for line in lines:
        where = f" WHERE {line.where}" if line.where else ""
        why = line.problem if line.is_binding else f"{line.problem} (admitted anyway)"
        time = datetime.fromtimestamp(line.at_ms / 1_000).strftime("%H:%M:%S")
        table.add_row(time, line.client, line.filter + where, why)
    return table


def _between(between: ReportedInterval, noun: str) -> tuple[str, str]:
    def shown(value: float) -> str:
        return rate_text(value) if noun == "rate" else f"{value:,.0f}"

    return shown(between.low), "any number" if between.high is None else shown(between.high)
