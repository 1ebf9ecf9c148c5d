"""Admission of this node as Prometheus metrics, by resource; without client names.

Bandwidth is reported by link, and for all clients together.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from accord.core.admission.status import AdmissionStatus


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
    promised = GaugeMetricFamily("accord_admission_promised", "What is promised", labels=labels)
    used = GaugeMetricFamily("accord_admission_used", "What is used", labels=labels)
    capacity = GaugeMetricFamily("accord_admission_capacity", "What there is", labels=labels)
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
