from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from tests.fake_node import FakeNode

from accord.core.monitoring.statistics import JournalStatus, PipelineStatus
from accord.http.metrics import exposition, registry_of

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(node: FakeNode) -> Samples:
    text, media_type = exposition(registry_of(node), "")
    assert media_type.startswith("text/plain")
    found: Samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_what_the_node_counts_is_told() -> None:
    node = FakeNode()
    counters = node.counters
    counters.count_connect()
    counters.count_refused('odd "cause"\n')
    counters.publishes_received[1] += 7
    counters.bytes_sent += 900
    counters.count_shed("queue full", "slow", 4)
    counters.replaced = 3
    counters.queued_messages[5] = 2
    samples = scrape(node)
    for name, labels, value in (
        ("accord_info", (("name", "alpha"), ("version", "1.2")), 1),
        ("accord_ready", (), 1),
        ("accord_uptime_seconds", (), 2.5),
        ("accord_connections", (), 1),
        ("accord_sessions", (), 3),
        ("accord_connects_refused_total", (("cause", 'odd "cause"\n'),), 1),
        ("accord_messages_received_total", (("qos", "1"),), 7),
        ("accord_messages_received_total", (("qos", "0"),), 0),
        ("accord_bytes_sent_total", (), 900),
        ("accord_shed_total", (("cause", "queue full"),), 4),
        ("accord_replaced_total", (), 3),
        ("accord_queue_depth", (("importance", "5"),), 2),
    ):
        assert samples[name, labels] == value
    assert ("accord_journal_bytes", ()) not in samples
    assert samples["process_cpu_seconds_total", ()] > 0


def test_waits_are_a_histogram_in_seconds() -> None:
    node = FakeNode()
    for wait_ms in (0, 1, 1, 100, 10**8):
        node.counters.count_wait(3, wait_ms)
    samples = scrape(node)
    name = "accord_time_in_queue_seconds"

    def at(bound: str) -> float:
        return samples[f"{name}_bucket", (("importance", "3"), ("le", bound))]

    assert [at(bound) for bound in ("0.001", "0.002", "0.064", "0.128", "65.536", "+Inf")] == [
        *(1, 3, 3, 4, 4, 5),
    ]
    label = (("importance", "3"),)
    assert samples[f"{name}_count", label] == 5
    assert samples[f"{name}_sum", label] == (10**8 + 102) / 1_000


def test_the_journal_is_told_where_there_is_one() -> None:
    node = FakeNode()
    node.journal = JournalStatus(segments=2, next_offset=9, synced_offset=7, failure="disk full")
    samples = scrape(node)
    assert samples["accord_journal_segments", ()] == 2
    assert samples["accord_journal_unsynced", ()] == 2
    assert samples["accord_journal_failed", ()] == 1


def test_openmetrics_where_it_is_asked_for() -> None:
    text, media_type = exposition(
        registry_of(FakeNode()), "application/openmetrics-text; version=1.0.0"
    )
    assert media_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")


def test_the_pipeline() -> None:
    node = FakeNode()
    node.pipeline = PipelineStatus(
        state="ready",
        lag_ms=1_500,
        lag_records=7,
        events=100,
        rows_per_s=12.5,
        files=3,
        bytes=900,
        queries=5,
        restarts=2,
    )
    samples = scrape(node)
    for name, value in (
        ("pipeline_up", 1),
        ("pipeline_lag_seconds", 1.5),
        ("pipeline_lag_records", 7),
        ("pipeline_events_total", 100),
        ("pipeline_rows_per_second", 12.5),
        ("pipeline_archive_files", 3),
        ("pipeline_archive_bytes", 900),
        ("pipeline_queries_total", 5),
        ("pipeline_restarts_total", 2),
    ):
        assert samples[f"accord_{name}", ()] == value
    node.pipeline = PipelineStatus(state="starting")
    assert scrape(node)["accord_pipeline_up", ()] == 0
