"""`accord admission …`: advertised filters, reserved and free resources, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.arguments import check_filter
from accord.cli.http_client import AnyNodeHttpClient
from accord.cli.options import CommandGroup, IsJson, Output, complete_channels, print_answer
from accord.cli.parameters import argument, option
from accord.core.admission.status import (
    AdmissionStatus,
    DemandStatus,
    FilterStatus,
    NodeBook,
    PoolStatus,
    RefusalStatus,
    ReportedInterval,
)
from accord.core.broker.subscription_admission import amount_text
from accord.operations.admission import (
    CheckSubscription,
    GetAdmission,
    ListBooks,
    NodeBookList,
)
from accord.terminal.amounts import clock_text, count_text, rate_text
from accord.terminal.rows import Cell, Column, Figure, section, table, warned
from accord.terminal.screen import safe

MAX_ROWS: Final = 60
_TIMEOUT_S: Final = 15.0  # the node may have to ask others
_DEEPEST: Final = 20
_OFF: Final = (
    "admission is off: every subscription is accepted. To refuse those that exceed the resources, "
    'set mode = "enforce" under [admission] in accord.toml ("report" only reports them)'
)
_HERE: Final = "only the parents of this node know the advertisements of other nodes"
_NOTHING: Final = "nothing is advertised, so no subscription needs resources"

app = CommandGroup(no_args_is_help=False, invoke_without_command=True)


@app.callback()
def admission(*, output: Output, node: AnyNodeHttpClient) -> None:
    """Show advertised filters with rate and count, resources of all nodes, recent refusals."""
    output.show(lambda: node.call(GetAdmission()), draw_admission)


@app.command("check")
def check(
    channel: str = argument(
        "FILTER", "A channel, or a filter.", show_default=False, autocompletion=complete_channels
    ),
    *,
    where: str = option(
        "PREDICATE", "Predicate of the subscription; default: all events.", default=""
    ),
    client: str = option(
        "ID",
        "Client whose link and policies apply; what it has of it already does not count against "
        "it. Default: none.",
        default="",
    ),
    rate: float | None = option(
        "HZ", "Ask whether so many events per second fit; default: what is advertised."
    ),
    is_json: IsJson = False,
    node: AnyNodeHttpClient,
) -> None:
    """Say whether a subscription would be admitted now, and what it would need.

    Exit code 1 if it would be refused.
    """
    check_filter(channel, "FILTER")
    need = node.call(
        CheckSubscription(channel=channel, where=where, client=client, rate_hz=rate), _TIMEOUT_S
    )
    print_answer(need, draw_need, is_json=is_json)
    if need.state != "admitted":
        raise typer.Exit(1)


@app.command("books")
def books(*, output: Output, node: AnyNodeHttpClient) -> None:
    """Show what each node of the network has promised, its tightest resource, its refusals."""
    output.show(lambda: node.call(ListBooks(), _TIMEOUT_S), draw_books)


def _filter_text(channel: str, where: str) -> str:
    return f"{channel} WHERE {where}" if where else channel


def _refusal(line: RefusalStatus) -> str:
    return line.problem if line.is_binding else f"{line.problem} (admitted anyway)"


class FilterRow(msgspec.Struct, frozen=True):
    filter: Cell
    rate: Figure = ""
    count: Figure = ""
    own: Figure = Text("see above", "dim")


def _per_second(rate_hz: float) -> str:
    return f"{rate_text(rate_hz)}/s"


class AdvertiserRow(msgspec.Struct, frozen=True):
    client: str
    name: Annotated[str, Column("advertises")]
    rate_hz: Annotated[float, Column("rate", _per_second)]
    passed: int
    limited: Annotated[int, Column("beyond", warned("{:,}".format))]


def _amount(field: str) -> Callable[[PoolStatus], str]:
    def text(line: PoolStatus) -> str:
        value = getattr(line, field)
        return "?" if value is None else amount_text(line.resource, value)

    return text


def _free(line: PoolStatus) -> Text:
    style = "red" if line.free is not None and line.free <= 0 else ""
    return Text(_amount("free")(line), style)


class PoolRow(msgspec.Struct, frozen=True):
    node: str
    resource: Annotated[
        str, Column(of=lambda each: f"{each.resource} of {each.of}" if each.of else each.resource)
    ]
    capacity: Annotated[str, Column("there is", of=_amount("capacity"), is_number=True)]
    promised: Annotated[str, Column(of=_amount("promised"), is_number=True)]
    used: Annotated[str, Column(of=_amount("used"), is_number=True)]
    free: Annotated[Cell, Column(of=_free, is_number=True)]


class RefusalRow(msgspec.Struct, frozen=True):
    at_ms: Annotated[int, Column("time", clock_text, is_number=False)]
    client: str
    filter: Annotated[str, Column(of=lambda each: _filter_text(each.filter, each.where))]
    problem: Annotated[str, Column("why", of=_refusal)]


def _tightest(book: NodeBook) -> Text:
    if book.problem:
        return Text(safe(book.problem), "yellow")
    if not book.pools:
        return Text("–", "dim")
    pool = book.pools[0]
    name = f"{pool.resource} of {safe(pool.of)}" if pool.of else pool.resource
    free = "not limited" if pool.free is None else f"{_amount('free')(pool)} free"
    is_short = pool.free is not None and pool.free <= 0
    return Text(f"{name}: {free}", "red" if is_short else "")


class BookRow(msgspec.Struct, frozen=True):
    node: str
    mode: str
    subscriptions: Annotated[int, Column("promised")]
    refused: Annotated[int, Column(of=lambda each: sum(each.refused.values()))]
    tightest: Annotated[Cell, Column(of=_tightest)]


class NeedRow(msgspec.Struct, frozen=True):
    of: Annotated[str, Column("")]
    at_least: Figure
    at_most: Figure


def draw_admission(status: AdmissionStatus, *, rows: int = MAX_ROWS) -> Group:
    """Draw all parts, with at most `rows` lines each."""
    parts: list[RenderableType] = [_headline(status)]
    if status.mode == "off":
        return Group(*parts, Text(_OFF, "yellow"))
    lines = list(_tree(status.filters))
    publishers = status.publishers[:rows]
    parts += section(table(FilterRow, map(_filter, lines[:rows])), len(lines), title="advertised")
    parts += section(table(AdvertiserRow, publishers), len(status.publishers), title="publishers")
    pools = table(PoolRow, status.pools[:rows])
    parts += section(pools, len(status.pools), title="resources")
    refused = table(RefusalRow, status.lately[:rows])
    parts += section(refused, len(status.lately), title="refused lately")
    if status.filters_total > len(status.filters):
        more = status.filters_total - len(status.filters)
        parts.append(Text(f"… and {more:,} more filters", "dim"))
    if status.is_secondary or not status.filters:
        parts += [Text(), Text(_HERE if status.is_secondary else _NOTHING, "dim")]
    return Group(*parts)


def draw_books(found: NodeBookList) -> RenderableType:
    shown = table(BookRow, found.books)
    if not found.left_out:
        return shown
    return Group(shown, Text(f"… and {found.left_out:,} more nodes", "dim"))


def draw_need(need: DemandStatus) -> Group:
    rows = (
        NeedRow("events/s, by what intersects it", *_between(need.rate_hz, is_rate=True)),
        NeedRow("events/s, as in the paper", *_between(need.paper_rate_hz, is_rate=True)),
        NeedRow("advertisements, by what intersects it", *_between(need.count)),
        NeedRow("advertisements, as in the paper", *_between(need.paper_count)),
    )
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
    remarks = (Text(f"measured: {estimate}", "dim"), Text(asked, "dim"))
    fits = (Text(f"to fit: {safe(each.remedy)}") for each in need.shortages)
    return Group(_verdict(need), *fits, Text(), table(NeedRow, rows), *remarks)


def _verdict(need: DemandStatus) -> Text:
    what = (safe(_filter_text(need.channel, need.where)), "bold")
    return Text.assemble(
        what, "  ", (safe(need.answer), "green" if need.state == "admitted" else "red")
    )


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


def _filter(found: tuple[int, FilterStatus, bool]) -> FilterRow:
    depth, line, is_again = found
    name = f"{'  ' * depth}{safe(_filter_text(line.channel, line.where))}"
    if is_again:
        return FilterRow(Text(name, "dim"))
    own = f"{_per_second(line.own_rate_hz)} by {line.own_count:,}"
    return FilterRow(name, _per_second(line.rate_hz), f"{line.count:,}", own)


def _between(between: ReportedInterval, *, is_rate: bool = False) -> tuple[str, str]:
    low, high = (
        "any number" if each is None else rate_text(each) if is_rate else f"{each:,.0f}"
        for each in (between.low, between.high)
    )
    return low, high
