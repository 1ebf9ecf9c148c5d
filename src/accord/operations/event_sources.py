"""Where outcomes of events come from: the ledgers of this node and of others, and the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from accord.core.monitoring.ledger import LedgerEntry, event_id
from accord.core.monitoring.outcomes import DeliveryOutcome, outcome_of
from accord.core.monitoring.top import Waiting
from accord.core.model.errors import AccordError
from accord.core.queries.messages import EventQuery, LedgerLookup
from accord.journal.ledger_records import LedgerQuery, LedgerResult
from accord.operations.operation import Asker, RequestError
from accord.operations.ports import LedgerPort, NodePorts, need


class KnownEvent(Struct, frozen=True, kw_only=True):
    """All that is known of one event, and by which nodes."""

    channel: str
    publisher: str
    received_ms: int
    outcomes: tuple[DeliveryOutcome, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    nodes: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    is_archived: bool = False
    is_complete: bool = True
