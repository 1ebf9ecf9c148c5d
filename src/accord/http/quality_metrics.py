"""Negotiated quality as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from accord.core.quality.status import QualityTotals


def quality_metrics(totals: QualityTotals) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "accord_expectations", "Expectations, by how they stand", labels=["state"]
    )
    for state, count in totals.states.items():
        states.add_metric([state], count)
    yield states
    yield GaugeMetricFamily("accord_profiles", "Profiles of publishers", totals.profiles)
    words = "Properties of profiles that are moved now, or held where they were moved to"
    yield GaugeMetricFamily("accord_reactions", words, totals.reactions)
    for name, words, value in (
        ("advice", "Advice for publishers", totals.advice),
        ("states_told", "States told to subscribers", totals.told),
        ("usages_told", "Usages told to publishers", totals.usages),
        ("quality_acts", "What the node was to do for somebody's quality", totals.acts),
        ("rate_filtered", "Events that subscribers did not need", totals.filtered),
    ):
        yield CounterMetricFamily(f"accord_{name}", words, value)
