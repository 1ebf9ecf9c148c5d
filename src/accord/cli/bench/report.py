"""Results of a measurement, for operators and for programs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from accord.cli.bench.load import LoadShape, Result
from accord.cli.quantities import count_text, latency_text, rate_text, size_text
from accord.cli.screen import print_line
from accord.cli.table import Table, figures

PERCENTILES: Final = (50, 90, 99)

_BUSY: Final = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """`latency` was measured at `latency_hz`, in the same run or a separate one."""

    url: str
    host: str
    shape: LoadShape
    throughput: Result
    latency: Result
    latency_hz: float
    requested_hz: float | None = None
    node_cpu_s: float | None = None

    @property
    def is_here(self) -> bool:
        """Whether node and tool share a machine, as far as can be determined."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def node_cpu_us(self) -> float | None:
        """Per event that left the node, or entered if none left."""
        events = self.throughput.delivered or self.throughput.published
        return None if self.node_cpu_s is None or not events else self.node_cpu_s * 1e6 / events


def to_fields(report: BenchReport) -> dict[str, Any]:
    shape, result, samples = report.shape, report.throughput, report.latency.samples
    return {
        "url": report.url,
        "publishers": shape.publishers,
        "subscribers": shape.subscribers,
        "size_bytes": shape.size,
        "qos": shape.qos,
        "seconds": round(result.spent_s, 3),
        "published": result.published,
        "delivered": result.delivered,
        "lost": result.lost,
        "refused": result.refused,
        "published_per_s": round(result.published_hz, 1),
        "delivered_per_s": round(result.delivered_hz, 1),
        "delivered_mb_per_s": round(result.delivered_hz * shape.size / 1e6, 3),
        "tool_cpu_share": round(result.cpu_share, 3),
        "node_cpu_us_per_event": _rounded(report.node_cpu_us),
        "latency_at_per_s": round(report.latency_hz, 1),
        "latency_us": {
            **{f"p{share}": _us(samples.percentile(share)) for share in PERCENTILES},
            "max": _us(samples.most),
        }
        if len(samples)
        else None,
    }


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


def _throughput(report: BenchReport) -> Table:
    shape, result = report.shape, report.throughput
    table = Table("", *figures("events", "per second", "MB/s"))
    for name, count, rate_hz in (
        ("published", result.published, result.published_hz),
        ("delivered", result.delivered, result.delivered_hz),
    ):
        megabytes = f"{rate_hz * shape.size / 1e6:,.1f}"
        table.add_row(name, f"{count:,}", Text(rate_text(rate_hz), "bold"), megabytes)
    table.add_row("lost", Text(f"{result.lost:,}", "bold red" if result.lost else ""), "", "")
    if result.refused:
        table.add_row("refused", Text(f"{result.refused:,}", "bold red"), "", "")
    return table


def _latency(report: BenchReport) -> Table:
    samples = report.latency.samples
    table = Table("latency", *figures(*(f"p{share}" for share in PERCENTILES), "max"))
    at = f"at {rate_text(report.latency_hz)}/s"
    measured = [samples.percentile(share) for share in PERCENTILES]
    table.add_row(at, *(latency_text(each / 1e9) for each in [*measured, samples.most]))
    return table


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


def _us(value_ns: float) -> float:
    return round(value_ns / 1e3, 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
