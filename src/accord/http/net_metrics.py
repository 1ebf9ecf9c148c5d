"""A node's part in the overlay as Prometheus metrics.

Each node reports only its own links, flows and arrivals, so scraping all nodes yields each once.
Channels are labelled by their definitions, because their names come from outside.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from accord.core.overlay.status import IN_USE, NetStatus, TransitCounts, shortfall


def net_metrics(net: NetStatus) -> Iterator[Metric]:
    yield from _nodes(net)
    yield from _links(net)
    yield from _flows(net)
    yield from _carried(net.carried)
    delivered = _counters("delivered", "Events that came from other nodes", "channel")
    late = _counters("late", "Events that came after the maximum delay", "channel")
    for each in net.in_time:
        delivered.add_metric([each.channel], each.delivered)
        late.add_metric([each.channel], each.late)
    yield from (delivered, late)


def _nodes(net: NetStatus) -> Iterator[Metric]:
    reachable = sum(node.is_reachable for node in net.nodes)
    nodes = GaugeMetricFamily("accord_net_nodes", "Nodes that are known", labels=["state"])
    nodes.add_metric(["reachable"], reachable)
    nodes.add_metric(["unreachable"], len(net.nodes) - reachable)
    yield nodes
    unlinked = "Neighbours that there is no link with"
    yield GaugeMetricFamily("accord_net_unlinked", unlinked, len(net.unlinked))
    widened = "Filters of clients that other nodes are told wider, for want of room"
    yield GaugeMetricFamily("accord_net_needs_widened", widened, net.needs_widened)


def _links(net: NetStatus) -> Iterator[Metric]:
    up = _gauges("link_up", "1 while the link can be used", "neighbour")
    latency = _gauges("link_latency_seconds", "One way, smoothed", "neighbour")
    loss = _gauges("link_loss", "Share of pings that are not answered in time", "neighbour")
    for link in net.links:
        if link.source == net.node:
            up.add_metric([link.target], link.is_used)
            latency.add_metric([link.target], link.latency_us / 1e6)
            loss.add_metric([link.target], link.loss)
    yield from (up, latency, loss)


def _flows(net: NetStatus) -> Iterator[Metric]:
    """Flows by destination; there are several to one if channels have different requirements."""
    flows = _gauges("flows", "Flows that begin here", "destination")
    unmet = _gauges("flows_unmet", "Flows that lack something that is required", "destination")
    routes = _gauges("routes", "Routes in use that begin here", "destination")
    counts: dict[str, list[int]] = {}
    for flow in net.flows:
        if flow.source == net.node:
            count = counts.setdefault(flow.destination, [0, 0, 0])
            count[0] += 1
            count[1] += bool(shortfall(flow))
            count[2] += sum(route.state == IN_USE for route in flow.routes)
    for destination, count in counts.items():
        for family, value in zip((flows, unmet, routes), count, strict=True):
            family.add_metric([destination], value)
    yield from (flows, unmet, routes)


def _carried(carried: TransitCounts) -> Iterator[Metric]:
    for name, words, value in (
        ("published", "Events of this node for others", carried.published),
        ("sent_again", "Events that were not acknowledged in time", carried.sent_again),
        ("events_sent", "Events sent over links", carried.sent),
        ("events_sent_bytes", "Bytes of events sent over links", carried.sent_bytes),
        ("events_received", "Events received over links", carried.received),
        ("events_received_bytes", "Bytes of events received over links", carried.received_bytes),
    ):
        yield CounterMetricFamily(f"accord_net_{name}", words, value)
    lost = _counters("lost", "Copies of events that did not get further", "cause")
    for cause, count in carried.lost.items():
        lost.add_metric([cause], count)
    yield lost


def _gauges(name: str, words: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"accord_net_{name}", words, labels=[label])


def _counters(name: str, words: str, label: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"accord_net_{name}", words, labels=[label])
