"""Aims are judged by the figures, and left open where a trial can't tell."""

from __future__ import annotations

from benchmarks.aims import Aim, aims_table
from benchmarks.table2.aims import aims
from benchmarks.table2.bandwidth import Part
from benchmarks.table2.figures import Figures
from benchmarks.table2.tables import bandwidth_table, cpu_table, further_links, paper

from benchmarks.table2 import bandwidth, cpu


def figures(latency_s: float, *, delivered: int = 100, seconds: float = 10.0) -> Figures:
    return Figures(
        seconds=seconds, offered=100, delivered=delivered, arrived=delivered,
        arrived_bytes=1_000 * delivered, largest=70_000, latencies_s=[latency_s] * delivered,
    )  # fmt: skip


def part(latency_s: float, *, used: float = 36_000, seconds: float = 300.0) -> Part:
    normal = figures(60.0, delivered=25)
    return Part(300, 36_000, used, figures(latency_s, seconds=seconds), normal)


def verdicts(found: list[Aim]) -> dict[tuple[str, str], str]:
    return {(aim.where, aim.wanted): aim.verdict for aim in found}


def test_cpu() -> None:
    half = cpu.Half(unloaded=figures(0.002))
    half.loaded["fifo"] = cpu.Loaded(figures(2.0), figures(2.0), [1.0])
    half.loaded["strict"] = cpu.Loaded(figures(0.0035), figures(3.0), [1.0])
    half.loaded["weighted fair"] = cpu.Loaded(figures(0.05, delivered=98), figures(3.0), [1.0])
    found = verdicts(aims(half, None))
    lower = "important p95 ≥ 50 × lower than fifo"
    assert found[("CPU, strict", "important ≥ 99% delivered")] == "met"
    assert found[("CPU, strict", "important p95 ≤ 2 × unloaded")] == "met"
    assert found[("CPU, strict", lower)] == "met"
    assert found[("CPU, weighted fair", "important ≥ 99% delivered")] == "missed"
    assert found[("CPU, weighted fair", "important p95 ≤ 2 × unloaded")] == "missed"
    assert found[("CPU, weighted fair", lower)] == "missed"
    assert cpu_table(half).rows[0][0] == "unloaded"


def test_bandwidth() -> None:
    half = bandwidth.Half()
    half.parts["fifo"] = part(120.0)
    half.parts["strict"] = part(2.0)
    half.parts["weighted fair"] = part(4.0, used=30_000)
    half.saturated = part(20.0)
    half.changing = [part(2.0)]
    found = verdicts(aims(None, half))
    transmissions = "important p95 ≤ 2 transmissions of its largest event"
    assert found[("bandwidth, strict", transmissions)] == "met"
    assert found[("bandwidth, strict", "link use ≥ 95%")] == "met"
    assert found[("bandwidth, weighted fair", transmissions)] == "missed"
    assert found[("bandwidth, weighted fair", "link use ≥ 95%")] == "missed"
    lower = "important p95 ≥ 50 × lower than fifo"
    assert found[("bandwidth, strict", lower)] == "met"
    assert found[("bandwidth, weighted fair", lower)] == "missed"
    share = "normal gets its share of 20%, within 5% of it"
    assert found[("both channels saturate, weighted fair", share)] == "met"
    assert found[("link changes, strict, 300 kbit/s", transmissions)] == "met"


def test_a_trial_that_is_too_short_does_not_tell_how_old_a_queue_gets() -> None:
    half = bandwidth.Half()
    half.parts["fifo"] = part(40.0, seconds=50.0)
    half.parts["strict"] = part(2.0, seconds=50.0)
    lower = "important p95 ≥ 50 × lower than fifo"
    assert verdicts(aims(None, half))[("bandwidth, strict", lower)] == "can't tell"


def test_tables_have_a_place_for_what_is_missing() -> None:
    first, second = cpu.Half(absent=["Left out: x."]), bandwidth.Half()
    second.parts["mosquitto"] = part(30.0)
    rows = paper(first, second).rows
    assert [row[:2] for row in rows] == [
        ["CPU", "important"], ["CPU", "normal"],
        ["bandwidth", "important"], ["bandwidth", "normal"],
    ]  # fmt: skip
    assert rows[0][2:] == ["–"] * 8
    assert rows[2][9] == "30.0"
    assert "Left out: x." in cpu_table(first).notes
    assert len(bandwidth_table(second).rows) == 2
    assert not further_links(second).rows
    assert not aims_table(aims(first, second)).rows
