"""The sentences about a phase come from what was measured."""

from __future__ import annotations

from collections import Counter

from accord.apps.demonstrations.meters import PhaseStats, SourceStats
from accord.apps.demonstrations.summary import summarise_phase

IMAGERY = "uav/imagery"
REPORT = "patrol/report"


def phase(name: str, *lines: SourceStats, seconds: float = 10.0) -> PhaseStats:
    by_key = {(line.channel, line.source): line for line in lines}
    return PhaseStats(name, 0, 0.0, by_key, seconds, sum(line.received_bytes for line in lines))


def line(source: str, *, lost: int, latency_s: float, importance: int = 2) -> SourceStats:
    return SourceStats(
        IMAGERY, source, offered=10, offered_bytes=500_000, received=10 - lost,
        received_bytes=(10 - lost) * 50_000, latencies_s=[latency_s] * (10 - lost),
        dropped=Counter({"expired": lost} if lost else {}), importance=importance, policy="AllUAS",
    )  # fmt: skip


def test_nothing_lost_is_said_in_one_line() -> None:
    words = summarise_phase(phase("1", line("UAV-1", lost=0, latency_s=0.004)), None)
    rates = "400 kbit/s offered, 400 received, nothing dropped"
    assert words == [f"{rates}; p95 from 4 ms (uav/imagery) to 4 ms (uav/imagery)."]


def test_losses_have_a_cause_and_a_policy_and_are_compared() -> None:
    before = phase("1", line("UAV-1", lost=0, latency_s=0.004))
    other = SourceStats(
        REPORT, "PATROL-1", offered=2, received=2, latencies_s=[0.1, 0.1], importance=4
    )
    words = summarise_phase(phase("2", line("UAV-1", lost=4, latency_s=4.5), other), before)
    assert "uav/imagery loses 4 of 10: 4 expired (importance 2, policy AllUAS)." in words
    assert "The other 1 channels, importance 4 and above, lose nothing." in words
    assert "uav/imagery gets 60% through, after 100%." in words
    assert "p95: uav/imagery 4.5 s after 4 ms." in words


def test_shapes_and_rivals_are_told() -> None:
    shaped = line("UAV-1", lost=0, latency_s=1.0)
    shaped.shaped, shaped.shaped_from, shaped.shaped_to = 5, 250_000, 100_000
    rival = line("UAV-2", lost=0, latency_s=0.3, importance=7)
    words = summarise_phase(phase("3", shaped, rival), None)
    made = "5 of 20 images that arrived were made smaller, on average from 50 KB to 20 KB"
    assert f"uav/imagery: {made}." in words
    assert (
        "On uav/imagery: UAV-2 (importance 7) p95 300 ms, UAV-1 (importance 2) p95 1.0 s." in words
    )


def test_what_is_still_queued_is_not_compared() -> None:
    before = phase("1", line("UAV-1", lost=0, latency_s=0.004))
    now = line("UAV-1", lost=9, latency_s=4.5)
    now.dropped["expired"] = 1
    words = summarise_phase(phase("2", now), before)
    assert "1 event dropped so far, 8 still queued" in words[0]
    assert not any("through" in each for each in words)
