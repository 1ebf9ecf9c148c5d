"""A node's statistics as Prometheus metrics: clients, queues, overlay, admission, quality.

Nothing is counted here: each scrape takes one snapshot. Client IDs and channel names come from
outside, and each would be a time series of its own: shed events are labelled by cause only,
channels by their definitions, and admission by resource, with bandwidth by link and for all clients
together.

Each node reports only its own links, flows and arrivals, so scraping all nodes yields each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from accord.core.admission.status import AdmissionStatus
from accord.core.monitoring.statistics import (
    WAIT_BOUNDS_MS,
    JournalStatus,
    PipelineStatus,
    Queue,
    Statistics,
    Traffic,
)
from accord.core.overlay.status import IN_USE, NetStatus, TransitCounts, shortfall
from accord.core.quality.status import QualityTotals
from accord.operations.ports import NodeView


def admission_metrics(status: AdmissionStatus) -> Iterator[Metric]:
    mode = GaugeMetricFamily("accord_admission_info", "How it is decided", labels=["mode"])
    mode.add_metric([status.mode], 1)
    yield mode
    for name, words, value in (
        ("advertisements", "Advertisements of all nodes that are known", status.advertisements),
        ("advertised_filters", "Different filters among them", status.filters_total),
        ("promises", "Subscriptions of this node that something is promised", status.subscriptions),
    ):
        yield GaugeMetricFamily(f"accord_admission_{name}", words, value)
    yield from _pools(status)
    decided = CounterMetricFamily(
        "accord_admission_decisions", "Subscriptions decided", labels=["state"]
    )
    for state, count in status.decided.items():
        decided.add_metric([state], count)
    refused = CounterMetricFamily(
        "accord_admission_refused", "Subscriptions refused or withdrawn", labels=["resource"]
    )
    for resource, count in status.refused.items():
        refused.add_metric([resource], count)
    yield from (decided, refused)
    beyond = "Events beyond what their publishers advertised"
    yield CounterMetricFamily("accord_admission_limited_events", beyond, status.limited)


def _pools(status: AdmissionStatus) -> Iterator[Metric]:
    """Resource pools: bytes of memory, events per second of CPU, bits per second of bandwidth."""
    labels = ["resource", "of"]
    promised = GaugeMetricFamily("accord_admission_promised", "Reserved amount", labels=labels)
    used = GaugeMetricFamily("accord_admission_used", "Used amount", labels=labels)
    capacity = GaugeMetricFamily("accord_admission_capacity", "Capacity", labels=labels)
    sums: dict[tuple[str, str], list[float]] = {}
    for pool in status.pools:
        if pool.node == status.node:
            of = "clients" if pool.of.startswith("client ") else pool.of
            values = sums.setdefault((pool.resource, of), [0.0, 0.0, 0.0, 0.0])
            values[0] += pool.promised
            values[1] += pool.used
            if pool.capacity is not None:
                values[2] += pool.capacity
                values[3] = 1
    for (resource, of), (was_promised, was_used, there, is_known) in sums.items():
        promised.add_metric([resource, of], was_promised)
        used.add_metric([resource, of], was_used)
        if is_known:
            capacity.add_metric([resource, of], there)
    yield from (promised, used, capacity)


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
    links_down = "Neighbours without a link"
    yield GaugeMetricFamily("accord_net_links_down", links_down, len(net.links_down))
    aggregated = "Filters of clients that are announced as part of an aggregate"
    yield GaugeMetricFamily("accord_net_interests_aggregated", aggregated, net.interests_aggregated)


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
        ("retransmitted", "Events sent again after a timeout", carried.retransmitted),
        ("events_sent", "Events sent over links", carried.sent),
        ("events_sent_bytes", "Bytes of events sent over links", carried.sent_bytes),
        ("events_received", "Events received over links", carried.received),
        ("events_received_bytes", "Bytes of events received over links", carried.received_bytes),
    ):
        yield CounterMetricFamily(f"accord_net_{name}", words, value)
    lost = _counters("lost", "Copies of events dropped at this node", "cause")
    for cause, count in carried.lost.items():
        lost.add_metric([cause], count)
    yield lost


def _gauges(name: str, words: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"accord_net_{name}", words, labels=[label])


def _counters(name: str, words: str, label: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"accord_net_{name}", words, labels=[label])


def quality_metrics(totals: QualityTotals) -> Iterator[Metric]:
    states = GaugeMetricFamily("accord_expectations", "Expectations by state", labels=["state"])
    for state, count in totals.states.items():
        states.add_metric([state], count)
    yield states
    yield GaugeMetricFamily("accord_profiles", "Profiles of publishers", totals.profiles)
    words = "Properties of profiles that are moved now, or held where they were moved to"
    yield GaugeMetricFamily("accord_reactions", words, totals.reactions)
    for name, words, value in (
        ("advice", "Advice for publishers", totals.advice),
        ("states_told", "State notifications to subscribers", totals.told),
        ("usages_told", "Usage notifications to publishers", totals.usages),
        ("quality_acts", "Mechanisms applied by the node", totals.acts),
        ("rate_filtered", "Events that subscribers did not need", totals.filtered),
    ):
        yield CounterMetricFamily(f"accord_{name}", words, value)


class NodeCollector(Collector):
    def __init__(
        self,
        view: NodeView,
        net: Callable[[], NetStatus] | None,
        admission: Callable[[], AdmissionStatus] | None,
        quality: Callable[[], QualityTotals] | None,
    ) -> None:
        self._view = view
        self._net = net
        self._admission = admission
        self._quality = quality

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not take a snapshot."""
        return ()

    def collect(self) -> Iterator[Metric]:
        now = self._view.statistics()
        info = GaugeMetricFamily("accord_info", "Node name and version", labels=["name", "version"])
        info.add_metric([self._view.name, self._view.version], 1)
        yield info
        yield _gauge("ready", "1 while clients are served", self._view.is_ready())
        yield _gauge("uptime_seconds", "Time since the node started", now.uptime_ms / 1_000)
        yield from _clients(now)
        yield from _traffic("received", "received from clients", now.received)
        yield from _traffic("sent", "sent to clients", now.sent)
        yield _counter("messages_matched", "Messages with at least one receiver", now.matched)
        yield _counter("messages_unmatched", "Messages without a receiver", now.unmatched)
        yield from _queues(now.queues)
        yield _by_name("shed", "Messages that did not reach a client", "cause", now.shed.causes)
        yield _counter("replaced", "Messages whose place a newer value took", now.replaced)
        if now.journal is not None:
            yield from _journal(now.journal)
        if now.pipeline is not None:
            yield from _pipeline(now.pipeline)
        if self._net is not None:
            yield from net_metrics(self._net())
        if self._admission is not None:
            yield from admission_metrics(self._admission())
        if self._quality is not None:
            yield from quality_metrics(self._quality())


def registry_of(
    view: NodeView,
    net: Callable[[], NetStatus] | None = None,
    admission: Callable[[], AdmissionStatus] | None = None,
    quality: Callable[[], QualityTotals] | None = None,
) -> CollectorRegistry:
    """Metrics of the node, of its part in the overlay, and of the process it runs in."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(view, net, admission, quality))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics in a format that `accept` allows, and its media type."""
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def _clients(now: Statistics) -> Iterator[Metric]:
    yield _gauge("connections", "Clients connected", now.connections)
    yield _gauge("connections_peak", "Most clients connected at a time", now.connections_peak)
    yield _counter("connects", "Connections accepted", now.connects)
    yield _by_name("connects_refused", "Connections refused", "cause", now.connects_refused)
    yield _by_name("disconnects", "Connections ended", "reason", now.disconnects)
    yield _gauge("sessions", "Sessions of connected and offline clients", now.sessions)
    yield _gauge("subscriptions", "Subscriptions", now.subscriptions)
    yield _gauge("predicates", "Subscriptions that have a predicate", now.predicates)
    yield _gauge("retained_messages", "Retained messages", now.retained_messages)
    yield _gauge("retained_bytes", "Bytes of retained messages", now.retained_bytes)


def _traffic(direction: str, words: str, traffic: Traffic) -> Iterator[Metric]:
    yield _counter(f"bytes_{direction}", f"Bytes {words}", traffic.bytes)
    yield _counter(f"packets_{direction}", f"Packets {words}", traffic.packets)
    qualities = traffic.publishes
    counts = {"0": qualities.qos0, "1": qualities.qos1, "2": qualities.qos2}
    yield _by_name(f"messages_{direction}", f"Messages {words}", "qos", counts)
    yield _counter(
        f"message_bytes_{direction}", f"Bytes of messages {words}", traffic.publish_bytes
    )


def _queues(queues: Iterable[Queue]) -> Iterator[Metric]:
    label = ["importance"]
    depth = GaugeMetricFamily("accord_queue_depth", "Messages waiting for clients", labels=label)
    size = GaugeMetricFamily("accord_queue_bytes", "Bytes waiting for clients", labels=label)
    waits = HistogramMetricFamily(
        "accord_time_in_queue_seconds", "How long messages waited for a client", labels=label
    )
    for queue in queues:
        importance = [str(queue.importance)]
        depth.add_metric(importance, queue.messages)
        size.add_metric(importance, queue.bytes)
        buckets, reached = [], 0
        bounds = [*(str(bound_ms / 1_000) for bound_ms in WAIT_BOUNDS_MS), "+Inf"]
        for bound, count in zip(bounds, queue.waits.counts, strict=True):
            reached += count
            buckets.append((bound, float(reached)))
        waits.add_metric(importance, buckets, sum_value=queue.waits.total_ms / 1_000)
    yield from (depth, size, waits)


def _journal(journal: JournalStatus) -> Iterator[Metric]:
    yield _gauge("journal_segments", "Files of the journal", journal.segments)
    yield _gauge("journal_bytes", "Size of the journal", journal.bytes)
    yield _gauge("journal_first_offset", "Oldest record held", journal.first_offset)
    yield _counter("journal_records", "Records appended, ever", journal.next_offset)
    yield _gauge("journal_unsynced", "Records not yet on disk", journal.unsynced)
    yield _gauge("journal_failed", "1 while it can't be written", journal.failure is not None)


def _pipeline(pipeline: PipelineStatus) -> Iterator[Metric]:
    def gauge(name: str, words: str, value: float) -> Metric:
        return _gauge(f"pipeline_{name}", words, value)

    yield gauge("up", "1 while it archives and answers", pipeline.state == "ready")
    yield gauge("lag_seconds", "Age of the oldest record not archived", pipeline.lag_ms / 1_000)
    yield gauge("lag_records", "Records not archived yet", pipeline.lag_records)
    yield _counter("pipeline_events", "Events archived", pipeline.events)
    yield _counter("pipeline_ledger_rows", "Entries of the ledger archived", pipeline.ledger_rows)
    yield gauge("rows_per_second", "What it archives now", pipeline.rows_per_s)
    yield gauge("archive_files", "Files of the archive", pipeline.files)
    yield gauge("archive_bytes", "Size of the archive", pipeline.bytes)
    yield _counter("pipeline_compactions", "Times that files were merged", pipeline.compactions)
    yield _counter("pipeline_queries", "Questions answered", pipeline.queries)
    yield gauge("queries_running", "Queries in progress", pipeline.queries_running)
    yield gauge("queries_waiting", "Queries waiting to be started", pipeline.queries_waiting)
    yield _counter("pipeline_restarts", "Restarts", pipeline.restarts)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"accord_{name}", words, value)


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(f"accord_{name}", words, value)


def _by_name(name: str, words: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"accord_{name}", words, labels=[label])
    for each, count in counts.items():
        family.add_metric([each], count)
    return family
