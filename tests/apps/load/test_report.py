from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from accord.apps.load.load import LoadShape, Result, Samples
from accord.apps.load.report import BenchReport
from accord.apps.load.screen import show_report, title


def result(**changed: float) -> Result:
    samples = Samples()
    samples.add(np.arange(1, 1_001) * 1_000)
    facts = {
        "published": 1_000_000,
        "delivered": 2_000_000,
        "lost": 0,
        "refused": 0,
        "spent_s": 2.0,
        "cpu_share": 0.5,
        **changed,
    }
    return Result(samples=samples, **facts)  # type: ignore[arg-type]


def report(throughput: Result, **changed: object) -> BenchReport:
    facts = {
        "url": "mqtt://127.0.0.1:1883",
        "host": "127.0.0.1",
        "latency_hz": 1_000.0,
        **changed,
    }
    shape = LoadShape(subscribers=2)
    return BenchReport(shape=shape, throughput=throughput, latency=result(), **facts)  # type: ignore[arg-type]


def shown(given: BenchReport) -> list[str]:
    output = io.StringIO()
    show_report(Console(file=output, width=100), given)
    lines = [" ".join(line.split()) for line in output.getvalue().splitlines()]
    return [line for line in lines if line and "──" not in line]


def test_title() -> None:
    assert title(LoadShape(subscribers=2, qos=1)) == "1 publisher → 2 subscribers, 100 B, QoS 1"


def test_for_people() -> None:
    assert shown(report(result())) == [
        "events per second MB/s",
        "published 1,000,000 500,000 50.0",
        "delivered 2,000,000 1,000,000 100.0",
        "lost 0",
        "latency p50 p90 p99 max",
        "at 1,000/s 500 µs 900 µs 990 µs 1.00 ms",
        "The tool shares this machine with the node and used 50% of a core.",
    ]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (report(result(lost=7)), "lost 7"),
        (report(result(refused=9)), "refused 9"),
        (report(result(cpu_share=0.97)), "it may have been the limit"),
        (report(result(), host="example.org"), "The tool runs on this machine and used 50%"),
        (report(result(), node_cpu_s=1.5), "The node used 0.75 µs of CPU per event delivered."),
        (
            report(result(), requested_hz=600_000.0),
            "The rate asked for, 600,000/s, was not reached.",
        ),
    ],
)
def test_what_else_there_is_to_say(given: BenchReport, line: str) -> None:
    assert any(line in each for each in shown(given))


def test_for_programs() -> None:
    fields = report(result(), node_cpu_s=1.5).to_fields()
    assert fields["published_per_s"] == 500_000
    assert fields["delivered_mb_per_s"] == 100
    assert fields["node_cpu_us_per_event"] == 0.75
    assert fields["latency_us"] == {"p50": 500.5, "p90": 900.1, "p99": 990.0, "max": 1_000.0}


def test_without_subscribers_there_is_no_latency() -> None:
    none = Result(
        published=1,
        delivered=0,
        lost=0,
        refused=0,
        spent_s=1.0,
        cpu_share=0.0,
        samples=Samples(),
    )
    given = BenchReport(
        url="mqtt://x:1",
        host="x",
        shape=LoadShape(),
        throughput=none,
        latency=none,
        latency_hz=0.0,
    )
    assert given.to_fields()["latency_us"] is None
    assert not any("latency" in line for line in shown(given))
