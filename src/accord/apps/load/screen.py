"""Measurements on a terminal: progress, throughput, latency, and remarks on what limited them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from accord.apps.load.load import LoadShape
from accord.apps.load.report import PERCENTILES, BenchReport
from accord.terminal.amounts import count_text, latency_text, rate_text, size_text
from accord.terminal.rows import Cell, Column, Figure, Table, table
from accord.terminal.screen import print_line


@contextmanager
def progress_bar(console: Console, words: str, seconds: float) -> Iterator[Callable[[float], None]]:
    columns = (
        TextColumn("{task.description}", style="dim"),
        BarColumn(40),
        TextColumn("{task.fields[left]}"),
    )
    is_seen = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as bar:
        task = bar.add_task(words, total=1.0, left="")

        def advance(share: float) -> None:
            bar.update(task, completed=share, left=f"{seconds * (1 - share):.0f} s")

        yield advance


_BUSY: Final = 0.85


def show_report(console: Console, report: BenchReport) -> None:
    console.print(_throughput(report))
    console.print()
    if len(report.latency.samples):
        console.print(_latency(report))
        console.print()
    for remark in _remarks(report):
        print_line(console, Text(remark, "dim"))


def title(shape: LoadShape) -> str:
    return (
        f"{count_text(shape.publishers, 'publisher')} → "
        f"{count_text(shape.subscribers, 'subscriber')}, {size_text(shape.size)}, QoS {shape.qos}"
    )


class ThroughputRow(msgspec.Struct, frozen=True):
    what: Annotated[str, Column("")]
    events: Figure
    per_second: Figure = ""
    megabytes: Annotated[Cell, Column("MB/s", is_number=True)] = ""


class LatencyRow(msgspec.Struct, frozen=True):
    latency: str
    p50: Figure
    p90: Figure
    p99: Figure
    max: Figure


def _throughput(report: BenchReport) -> Table:
    shape, result = report.shape, report.throughput
    rows = []
    for name, count, rate_hz in (
        ("published", result.published, result.published_hz),
        ("delivered", result.delivered, result.delivered_hz),
    ):
        megabytes = f"{rate_hz * shape.size / 1e6:,.1f}"
        rate = Text(rate_text(rate_hz), "bold")
        rows.append(ThroughputRow(name, f"{count:,}", rate, megabytes))
    rows.append(ThroughputRow("lost", Text(f"{result.lost:,}", "bold red" if result.lost else "")))
    if result.refused:
        rows.append(ThroughputRow("refused", Text(f"{result.refused:,}", "bold red")))
    return table(ThroughputRow, rows)


def _latency(report: BenchReport) -> Table:
    samples = report.latency.samples
    measured = [*map(samples.percentile, PERCENTILES), samples.most]
    p50, p90, p99, most = (latency_text(each / 1e9) for each in measured)
    return table(
        LatencyRow, [LatencyRow(f"at {rate_text(report.latency_hz)}/s", p50, p90, p99, most)]
    )


def _remarks(report: BenchReport) -> list[str]:
    result = report.throughput
    share = f"{result.cpu_share:.0%} of a core"
    where = (
        "shares this machine with the node and" if report.is_here else "runs on this machine and"
    )
    remarks = [f"The tool {where} used {share}."]
    if result.cpu_share > _BUSY:
        remarks[0] = f"The tool {where} used {share}: it may have been the limit."
    if report.node_cpu_us is not None:
        cost = f"{report.node_cpu_us:.3g} µs of CPU per event"
        remarks.append(f"The node used {cost} {'delivered' if result.delivered else 'published'}.")
    if report.requested_hz is not None and result.published_hz < 0.98 * report.requested_hz:
        remarks.append(f"The rate asked for, {rate_text(report.requested_hz)}/s, was not reached.")
    return remarks
