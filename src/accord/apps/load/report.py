"""Results of a measurement: throughput and latency of a node under load."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Final

from accord.apps.load.load import LoadShape, Result

PERCENTILES: Final = (50, 90, 99)


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

    def to_fields(self) -> dict[str, Any]:
        shape, result, samples = self.shape, self.throughput, self.latency.samples
        return {
            "url": self.url,
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
            "node_cpu_us_per_event": _rounded(self.node_cpu_us),
            "latency_at_per_s": round(self.latency_hz, 1),
            "latency_us": {
                **{f"p{share}": _us(samples.percentile(share)) for share in PERCENTILES},
                "max": _us(samples.most),
            }
            if len(samples)
            else None,
        }


def _us(value_ns: float) -> float:
    return round(value_ns / 1e3, 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
