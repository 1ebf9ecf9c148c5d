"""Rates of a node's traffic, from two of its statistics."""

from __future__ import annotations

from msgspec import Struct

from accord.core.monitoring.statistics import Statistics


class ClientRates(Struct, frozen=True, kw_only=True):
    """Per second, over the last `seconds`."""

    seconds: float
    received_events: float
    sent_events: float
    received_bytes: float
    sent_bytes: float
    shed_events: float

    @classmethod
    def between(cls, before: Statistics | None, after: Statistics) -> ClientRates:
        """Rates since `before`; since the start if there is none or the node was restarted."""
        if before is not None and after.uptime_ms <= before.uptime_ms:
            before = None
        seconds = max(after.uptime_ms - (before.uptime_ms if before else 0), 1) / 1000
        then, now = _totals(before) if before else {}, _totals(after)
        rates = {
            name: round(max(count - then.get(name, 0), 0) / seconds, 3)
            for name, count in now.items()
        }
        return cls(seconds=seconds, **rates)


def _totals(statistics: Statistics) -> dict[str, int]:
    received, sent = statistics.received, statistics.sent
    return {
        "received_events": received.publishes.total,
        "sent_events": sent.publishes.total,
        "received_bytes": received.bytes,
        "sent_bytes": sent.bytes,
        "shed_events": statistics.shed.total,
    }
