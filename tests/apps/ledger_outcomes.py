"""Outcomes as the ledger of a node has them."""

from __future__ import annotations

from accord.core.monitoring.outcomes import DeliveryOutcome


def ledger_outcome(
    event: str,
    channel: str,
    publisher: str,
    outcome: str,
    received_ms: int,
    *,
    count: int = 1,
    importance: int = 0,
    policy: str = "",
) -> DeliveryOutcome:
    return DeliveryOutcome(
        event=event,
        count=count,
        channel=channel,
        publisher=publisher,
        destination="receiver",
        outcome=outcome,
        received_ms=received_ms,
        queued_ms=received_ms,
        done_ms=received_ms,
        queueing_ms=0,
        size=0,
        importance=importance,
        policy=policy,
    )
