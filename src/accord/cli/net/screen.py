"""Output of `accord net`: nodes, links, channels, routes, and deliveries in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.net.text import LOCAL, RecentRates, path_text, required_text, share_text, time_text
from accord.cli.net.tier_screen import draw_children, draw_parents, tier_words
from accord.cli.quantities import count_text, rate_text
from accord.cli.screen import safe
from accord.cli.table import NOTHING, Table, figures
from accord.core.overlay.status import (
    IN_USE,
    ArrivalStatus,
    ChannelStatus,
    FlowStatus,
    LinkStatus,
    NetStatus,
    NodeStatus,
    TransitCounts,
    TransportStatus,
    shortfall,
)

MAX_ROWS: Final = 100


def draw_net(
    status: NetStatus, lately: RecentRates | None = None, *, rows: int = MAX_ROWS
) -> Group:
    """Draw all tables, with at most `rows` lines each."""
    parts: list[RenderableType] = [_headline(status), *_troubles(status)]
    pairs = _pairs(status.links)
    parents = () if status.tier is None else status.tier.parents
    for table, total in (
        (_nodes(status, rows), len(status.nodes)),
        (_links(status, pairs, rows), len(pairs)),
        (_channels(status.channels[:rows]), len(status.channels)),
        (_flows(status.flows[:rows]), len(status.flows)),
        (_arrivals(status.arrivals[:rows], lately), len(status.arrivals)),
        (_transports(status.transports[:rows]), len(status.transports)),
        (draw_children(status.children[:rows]), len(status.children)),
        (draw_parents(parents[:rows]), len(parents)),
    ):
        if total:
            parts += [Text(), table]
        if total > rows:
            parts.append(Text(f"… and {total - rows:,} more (--json has all)", "dim"))
    if carried := _carried(status.carried):
        parts += [Text(), carried]
    return Group(*parts)


def met_text(channel_flows: int, met: int) -> Text:
    if not channel_flows:
        return Text(NOTHING, "dim")
    if met == channel_flows:
        return Text("yes", "green")
    return Text(f"by {met} of {channel_flows} flows", "yellow")


def _transports(rules: Sequence[TransportStatus]) -> Table:
    """Transport rules of this node, and what can't follow them; counts are copies per neighbour."""
    table = Table("channels", "transport", *figures("copies"), "kept on tcp")
    for rule in rules:
        kept = f"{rule.kept:,}, which must not be lost" if rule.kept else NOTHING
        table.add_row(", ".join(rule.channels), rule.transport, f"{rule.copies:,}", kept)
    return table


def _headline(status: NetStatus) -> Text:
    if status.tier is not None:
        return Text.assemble((safe(status.node), "bold"), "  ", tier_words(status.tier))
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


def _nodes(status: NetStatus, rows: int) -> Table:
    table = Table("node", "state", *figures("interests", "delay"))
    for node in status.nodes[:rows]:
        taken = time_text(node.processing_us) if node.processing_us else NOTHING
        table.add_row(node.name, _state(node, status.node), str(node.interests or NOTHING), taken)
    return table


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


def _links(status: NetStatus, pairs: list[list[LinkStatus]], rows: int) -> Table:
    table = Table("link", "state", *figures("forward", "reverse", "loss", "availability"))
    reachable = {node.name: node.is_reachable for node in status.nodes}
    for pair in pairs[:rows]:
        ends = min((pair[0].source, pair[0].target), (pair[0].target, pair[0].source))
        state = Text("up", "green") if all(each.is_used for each in pair) else Text("down", "red")
        if not any(reachable.get(end) for end in ends):
            state = Text("not known", "dim")  # last value reported while its node was reachable
        forward = next((each for each in pair if each.source == ends[0]), None)
        reverse = next((each for each in pair if each.source == ends[1]), None)
        table.add_row(
            f"{ends[0]} – {ends[1]}",
            state,
            _latency(forward),
            _latency(reverse),
            f"{100 * max(each.loss for each in pair):.1f} %",
            f"{100 * (1 - max(each.failure for each in pair)):.1f} %",
        )
    return table


def _latency(link: LinkStatus | None) -> str:
    return NOTHING if link is None or not link.is_up else time_text(link.latency_us)


def _channels(channels: Sequence[ChannelStatus]) -> Table:
    counts = figures("delivered", "in time")
    table = Table("channel", "requires", "met", *counts, "defined at")
    for channel in channels:
        template = "" if channel.template in ("routed", LOCAL) else f" ({channel.template})"
        required = required_text(
            channel.max_delay_us, channel.paths, channel.resiliency, channel.template
        )
        table.add_row(
            channel.name,
            required + template,
            met_text(channel.flows, channel.flows_met),
            f"{channel.delivered:,}" if channel.delivered else NOTHING,
            _in_time(channel.delivered, channel.late),
            channel.node,
        )
    return table


def _flows(flows: Sequence[FlowStatus]) -> Table:
    """A line per route; cells equal to those above are left empty."""
    table = Table("from", "to", "requires", "route", *figures("delay"), "state")
    for flow in flows:
        required = required_text(flow.max_delay_us, flow.paths, flow.resiliency)
        first = (flow.source, flow.destination, required)
        lacking = shortfall(flow)
        if not flow.routes:
            table.add_row(*first, NOTHING, NOTHING, Text(lacking, "red"))
        for number, route in enumerate(flow.routes):
            state = Text(route.state, "" if route.state == IN_USE else "yellow")
            if lacking and not number:
                state.append(f", {lacking}", "yellow")
            table.add_row(
                *(first if not number else ("", "", "")),
                path_text(route.path),
                time_text(route.delay_us),
                state,
            )
    return table


def _arrivals(arrivals: Sequence[ArrivalStatus], lately: RecentRates | None) -> Table:
    counts = ("delivered", "late", "in time")
    more = ("/s", "in time recently") if lately is not None else ()
    table = Table("at", "from", "channel", *figures(*counts, *more))
    for each in arrivals:
        row: list[str | Text] = [
            each.node,
            each.source or NOTHING,
            safe(each.channel) or Text("all others", "dim"),
            f"{each.delivered:,}",
            f"{each.late:,}" if each.late else NOTHING,
            _in_time(each.delivered, each.late),
        ]
        if lately is not None:
            row += [rate_text(lately.rate_hz(each)), _in_time(*lately.counts(each))]
        table.add_row(*row)
    return table


def _in_time(delivered: int, late: int) -> Text:
    return Text(share_text(delivered - late, delivered), "yellow" if late else "")


def _carried(carried: TransitCounts) -> Text | None:
    """Copies lost at this node, by cause."""
    parts = [f"{carried.retransmitted:,} retransmitted"] if carried.retransmitted else []
    if causes := [f"{count:,} {safe(cause)}" for cause, count in carried.lost.items() if count]:
        parts.append(f"copies lost: {', '.join(causes)}")
    if not parts:
        return None
    return Text(f"at this node: {'; '.join(parts)}", "dim")
