"""`accord net …`: all nodes, their links, channels and routes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.arguments import check_filter
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import CommandGroup, IsJson, Output, complete_channels, print_json
from accord.cli.parameters import argument
from accord.core.overlay.arrival_rates import RecentRates
from accord.core.overlay.route_trace import (
    LOCAL,
    ROUTED,
    FlowTrace,
    RouteTrace,
    TraceHop,
    template_of,
    traces,
)
from accord.core.overlay.status import (
    IN_USE,
    ArrivalStatus,
    ChannelStatus,
    ChildStatus,
    FlowStatus,
    LinkStatus,
    NetStatus,
    NodeStatus,
    ParentStatus,
    TierStatus,
    shortfall,
)
from accord.operations.channels import GetNet
from accord.terminal.amounts import count_text, rate_text
from accord.terminal.rows import (
    NOTHING,
    Cell,
    Column,
    Count,
    Figure,
    Table,
    microseconds,
    names,
    percent,
    section,
    table,
    warned,
)
from accord.terminal.rows import count as number
from accord.terminal.screen import open_console, print_line, safe

MAX_ROWS: Final = 100

_TREES: Final = ("single_source", "unreliable", "reliable", "total_order")
_FRAME: Final = 14  # lines of a full screen that are not rows
_MIN_ROWS: Final = 3

Delay = Annotated[int | None, Column("delay", microseconds)]

app = CommandGroup(no_args_is_help=False, invoke_without_command=True)


@app.callback()
def net(*, output: Output, node: NodeHttpClient) -> None:
    """Show all nodes as one of them knows them: links, channels, routes, what arrives in time."""
    console = open_console()
    recent = RecentRates() if output.is_watching else None
    rows = MAX_ROWS
    if output.is_watching and console.is_terminal:
        rows = max(_MIN_ROWS, (console.height - _FRAME) // 5)

    def draw(status: NetStatus) -> Group:
        if recent is not None:
            recent.sample(status, time.monotonic())
        return draw_net(status, recent, rows=rows)

    output.show(lambda: node.call(GetNet()), draw)


@app.command("trace")
def trace(
    channel: str = argument(
        "CHANNEL", "A channel, or a filter.", show_default=False, autocompletion=complete_channels
    ),
    *,
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Walk the routes of a channel hop by hop, with what each link takes and what is left."""
    check_filter(channel, "CHANNEL")
    status = node.call(GetNet())
    found = traces(status, channel)
    if is_json:
        print_json(*found)
    elif found:
        open_console().print(draw_traces(channel, found))
    else:
        print_line(open_console(), why_no_routes(status, channel))


# ----------------------------------------------------------------------------------------- the net


def required_text(
    max_delay_us: float, paths: int, resiliency: float, template: str = ROUTED
) -> str:
    """The requirements of a channel or a flow."""
    if template == LOCAL:
        return "stays on its node"
    parts = []
    if max_delay_us:
        parts.append(f"within {microseconds(max_delay_us)}")
    if paths > 1:
        parts.append(f"{paths} paths")
    if resiliency:
        parts.append(f"resiliency {resiliency:g}")
    return ", ".join(parts) or ("any route" if template == ROUTED else NOTHING)


def share_text(part: int, whole: int) -> str:
    """In percent; 100 % only if nothing is missing."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    if part < whole:
        share = min(share, 99.99)
    return f"{share:.2f}".rstrip("0").rstrip(".") + " %"


def met_text(flows: int, met: int) -> Text:
    if not flows:
        return Text(NOTHING, "dim")
    if met == flows:
        return Text("yes", "green")
    return Text(f"by {met} of {flows} flows", "yellow")


def _in_time(each: ChannelStatus | ArrivalStatus) -> Text:
    return in_time_text(each.delivered, each.late)


def in_time_text(delivered: int, late: int) -> Text:
    return Text(share_text(delivered - late, delivered), "yellow" if late else "")


def _required(channel: ChannelStatus) -> str:
    template = "" if channel.template in (ROUTED, LOCAL) else f" ({channel.template})"
    required = required_text(
        channel.max_delay_us, channel.paths, channel.resiliency, channel.template
    )
    return required + template


def _kept(copies: int) -> str:
    return f"{copies:,}, which must not be lost" if copies else NOTHING


def _role(child: ChildStatus) -> Text:
    role = Text("active", "green") if child.is_active else Text("standby")
    return role.append("" if child.is_linked else ", not linked", "yellow")


def _causes(lost: dict[str, int]) -> Cell:
    return warned(names, "red")([f"{count:,} {cause}" for cause, count in lost.items()])


def _delay(parent: ParentStatus) -> int | None:
    return parent.latency_us if parent.is_linked else None


def _parent_state(parent: ParentStatus) -> Text:
    if not parent.is_linked:
        return Text("not linked", "red")
    if parent.is_active:
        return Text("active", "green")
    return Text("standby") if parent.is_standby else Text("linked", "dim")


class NodeRow(msgspec.Struct, frozen=True):
    node: str
    state: Cell
    interests: Count
    delay: Delay


class LinkRow(msgspec.Struct, frozen=True):
    link: str
    state: Cell
    forward: Annotated[int | None, Column(unit=microseconds)]
    reverse: Annotated[int | None, Column(unit=microseconds)]
    loss: Annotated[float, Column(unit=percent)]
    availability: Annotated[float, Column(unit=percent)]


class ChannelRow(msgspec.Struct, frozen=True):
    name: Annotated[str, Column("channel")]
    requires: Annotated[str, Column(of=_required)]
    met: Annotated[Cell, Column(of=lambda each: met_text(each.flows, each.flows_met))]
    delivered: Count
    in_time: Annotated[Cell, Column(of=_in_time, is_number=True)]
    node: Annotated[str, Column("defined at")]


class RouteRow(msgspec.Struct, frozen=True):
    """Cells equal to those above are left empty."""

    source: Annotated[str, Column("from")]
    to: str
    requires: str
    route: str
    delay: Delay
    state: Cell


class ArrivalRow(msgspec.Struct):
    at: str
    source: Annotated[str, Column("from")]
    channel: Cell
    delivered: int
    late: Count
    in_time: Figure
    rate: Annotated[Figure, Column("/s", is_number=True, is_optional=True)] = ""
    recent: Annotated[Figure, Column("in time recently", is_number=True, is_optional=True)] = ""


class TransportRow(msgspec.Struct, frozen=True):
    """Transport rules of this node, and what can't follow them; counts are copies per neighbour."""

    channels: Annotated[Sequence[str], Column(unit=names)]
    transport: str
    copies: int
    kept: Annotated[int, Column("kept on tcp", _kept, is_number=False)]


class ChildRow(msgspec.Struct, frozen=True):
    """A secondary node that has this node as a parent."""

    name: Annotated[str, Column("child")]
    role: Annotated[Cell, Column(of=_role)]
    interests: Count
    waiting: Count
    lost: Annotated[dict[str, int], Column(unit=_causes)]


class ParentRow(msgspec.Struct, frozen=True):
    name: Annotated[str, Column("parent")]
    state: Annotated[Cell, Column(of=_parent_state)]
    delay: Annotated[int | None, Column(of=_delay, unit=microseconds)]
    waiting: Count
    lost: Annotated[int, Column(unit=warned(number, "red"))]


def draw_net(
    status: NetStatus, recent: RecentRates | None = None, *, rows: int = MAX_ROWS
) -> Group:
    """Draw all tables, with at most `rows` lines each."""
    parts: list[RenderableType] = [_headline(status), *_troubles(status)]
    pairs = _pairs(status.links)
    parents = () if status.tier is None else status.tier.parents
    routes = list(_routes(status.flows[:rows]))
    parts += section(table(NodeRow, _nodes(status, rows)), len(status.nodes))
    parts += section(table(LinkRow, _links(status, pairs[:rows])), len(pairs))
    parts += section(table(ChannelRow, status.channels[:rows]), len(status.channels))
    parts += section(table(RouteRow, routes), len(routes) + max(len(status.flows) - rows, 0))
    parts += section(_arrivals(status.arrivals[:rows], recent), len(status.arrivals))
    parts += section(table(TransportRow, status.transports[:rows]), len(status.transports))
    parts += section(table(ChildRow, status.children[:rows]), len(status.children))
    parts += section(table(ParentRow, parents[:rows]), len(parents))
    carried = status.carried
    lost = [f"{count:,} {safe(cause)}" for cause, count in carried.lost.items() if count]
    facts = [f"{carried.retransmitted:,} retransmitted"] if carried.retransmitted else []
    facts += [f"copies lost: {', '.join(lost)}"] if lost else []
    if facts:
        parts += [Text(), Text(f"at this node: {'; '.join(facts)}", "dim")]
    return Group(*parts)


def _headline(status: NetStatus) -> Text:
    if status.tier is not None:
        return Text.assemble((safe(status.node), "bold"), "  ", _tier_text(status.tier))
    reachable = sum(node.is_reachable for node in status.nodes)
    pairs = _pairs(status.links)
    up = sum(all(each.is_used for each in pair) for pair in pairs)
    parts = [
        f"{reachable} of {count_text(len(status.nodes), 'node')} reachable",
        f"{up} of {count_text(len(pairs), 'link')} up",
    ]
    if status.flows:
        lacking = sum(bool(shortfall(flow)) for flow in status.flows)
        state = f"{lacking} lacking something" if lacking else "all as required"
        parts.append(f"{count_text(len(status.flows), 'flow')}, {state}")
    return Text.assemble((safe(status.node), "bold"), "  ", " · ".join(parts))


def _tier_text(tier: TierStatus) -> str:
    linked = sum(parent.is_linked for parent in tier.parents)
    parents = count_text(max(len(tier.parents), tier.configured), "parent")
    parts = [f"secondary node, {linked} of {parents} linked"]
    if tier.switches:
        parts.append(f"{count_text(tier.switches, 'change')} of the active one")
    if tier.waiting:
        parts.append(f"{count_text(tier.waiting, 'event')} not confirmed yet")
    return " · ".join(parts)


def _troubles(status: NetStatus) -> Iterator[Text]:
    if status.problem:
        yield Text(safe(status.problem), "bold red")
    if status.interests_aggregated:
        filters = count_text(status.interests_aggregated, "filter")
        yield Text(
            f"interests aggregated: {filters} of clients here exceed the announcement budget, "
            "so other nodes send more events than they want",
            "yellow",
        )
    for each in status.links_down:
        who = f" (node {each.node})" if each.node else ""
        words = "; ".join(filter(None, (each.problem, each.remedy)))
        yield Text(safe(f"no link with {each.address}{who}: {words}"), "yellow")
    for child in status.children:
        if child.problem:
            yield Text(safe(child.problem), "bold red")
    for refused in status.refused:
        who = f"{refused.node or 'a node'} at {refused.address}"
        words = "; ".join(filter(None, (refused.problem, refused.remedy)))
        times = f"{count_text(refused.attempts, 'time')} in {refused.since_s:,} s"
        yield Text(safe(f"refused {who} ({times}): {words}"), "yellow")


def _nodes(status: NetStatus, rows: int) -> Iterator[NodeRow]:
    for each in status.nodes[:rows]:
        delay_us = each.processing_us or None
        yield NodeRow(each.name, _state(each, status.node), each.interests, delay_us)


def _state(node: NodeStatus, own: str) -> Text:
    if node.name == own:
        return Text("this node", "bold")
    return Text("reachable", "green") if node.is_reachable else Text("unreachable", "red")


def _pairs(links: Sequence[LinkStatus]) -> list[list[LinkStatus]]:
    """Both directions of each link, or the one that is known."""
    found: dict[tuple[str, str], list[LinkStatus]] = {}
    for link in links:
        ends = (link.source, link.target)
        found.setdefault(min(ends, ends[::-1]), []).append(link)
    return [found[ends] for ends in sorted(found)]


def _links(status: NetStatus, pairs: list[list[LinkStatus]]) -> Iterator[LinkRow]:
    reachable = {node.name: node.is_reachable for node in status.nodes}
    for pair in pairs:
        ends = min((pair[0].source, pair[0].target), (pair[0].target, pair[0].source))
        state = Text("up", "green") if all(each.is_used for each in pair) else Text("down", "red")
        if not any(reachable.get(end) for end in ends):
            state = Text("not known", "dim")  # last value reported while its node was reachable
        latencies = {each.source: each.latency_us for each in pair if each.is_up}
        yield LinkRow(
            link=f"{ends[0]} – {ends[1]}",
            state=state,
            forward=latencies.get(ends[0]),
            reverse=latencies.get(ends[1]),
            loss=max(each.loss for each in pair),
            availability=1 - max(each.failure for each in pair),
        )


def _routes(flows: Sequence[FlowStatus]) -> Iterator[RouteRow]:
    for flow in flows:
        required = required_text(flow.max_delay_us, flow.paths, flow.resiliency)
        first = (flow.source, flow.destination, required)
        lacking = shortfall(flow)
        if not flow.routes:
            yield RouteRow(*first, NOTHING, None, Text(lacking, "red"))
        for route in flow.routes:
            state = Text(route.state, "" if route.state == IN_USE else "yellow")
            if lacking and first[0]:
                state.append(f", {lacking}", "yellow")
            yield RouteRow(*first, " → ".join(route.path), route.delay_us, state)
            first = ("", "", "")


def _arrivals(arrivals: Sequence[ArrivalStatus], recent: RecentRates | None) -> Table:
    rows = []
    for each in arrivals:
        channel = safe(each.channel) or Text("all others", "dim")
        source = each.source or NOTHING
        in_time = _in_time(each)
        row = ArrivalRow(each.node, source, channel, each.delivered, each.late, in_time)
        if recent is not None:
            row.rate = rate_text(recent.rate_hz(each))
            row.recent = in_time_text(*recent.counts(each))
        rows.append(row)
    return table(ArrivalRow, rows)


# ------------------------------------------------------------------------------------------ traces


def why_no_routes(status: NetStatus, channel: str) -> str:
    """Explain how events reach other nodes if there are no routes."""
    template = template_of(status, channel)
    if template == LOCAL:
        return f"{safe(channel)} is local: its events stay on their node"
    if status.tier is not None:
        parents = ", ".join(safe(each.name) for each in status.tier.parents) or "none yet"
        return f"events of {safe(channel)} go by the parents of {safe(status.node)}: {parents}"
    if template in _TREES:
        return f"{safe(channel)} is {template}: its events go by a tree, not by routes"
    if template != ROUTED:
        return f"{safe(channel)} is {safe(template)}: that template decides, not routes"
    return f"no node sends events of {safe(channel)} to another now: there is no route to walk"


def _hop_latency(hop: TraceHop) -> Cell:
    return microseconds(hop.latency_us) if hop.is_up else Text("down", "red")


class HopRow(msgspec.Struct, frozen=True):
    hop: Annotated[str, Column(of=lambda each: f"{each.source} → {each.target}")]
    link: Annotated[Cell, Column(of=_hop_latency, is_number=True)]
    node: Annotated[
        int | None, Column(of=lambda each: each.processing_us or None, unit=microseconds)
    ]
    so_far_us: Annotated[int, Column("so far", microseconds)]
    slack_us: Annotated[int | None, Column("slack", microseconds)]
    loss: Annotated[float, Column(unit=percent)]


def draw_traces(channel: str, found: Sequence[FlowTrace]) -> Group:
    parts: list[RenderableType] = []
    for each in found:
        parts += [Text()] if parts else []
        parts += _flow(channel, each)
    return Group(*parts)


def _flow(channel: str, flow: FlowTrace) -> Iterator[RenderableType]:
    required = required_text(flow.max_delay_us, flow.paths, flow.resiliency)
    state = (f"lacking: {flow.lacks}", "yellow") if flow.lacks else ("as required", "green")
    yield Text.assemble(
        (safe(channel), "bold"),
        safe(f" from {flow.source} to {flow.destination}, {required}: "),
        state,
        f", resiliency {flow.reached:.4g}" if flow.routes else "",
    )
    if not flow.is_named:
        yield Text("uncertain: this flow carries more channels than its source announces", "yellow")
    elif flow.channels != (channel,):
        yield Text(safe(f"carries {', '.join(flow.channels)}"), "dim")
    for place, route in enumerate(flow.routes, start=1):
        yield _route_line(place, route, flow.max_delay_us)
        yield table(HopRow, route.hops, indent=4)


def _route_line(place: int, route: RouteTrace, max_delay_us: int) -> Text:
    line = Text(f"  route {place}, ")
    line.append(route.state, "" if route.state == IN_USE else "yellow")
    line.append(f": {microseconds(route.delay_us)}")
    if route.margin_us is not None:
        line.append(f" of {microseconds(max_delay_us)}, ")
        if route.margin_us >= 0:
            line.append(f"{microseconds(route.margin_us)} to spare", "green")
        else:
            line.append(f"{microseconds(-route.margin_us)} too long", "red")
    return line
