"""The archived outcomes of one event, from the table of outcomes.

Of the files, those are read whose range of numbers includes the event's: usually a few.
"""

from __future__ import annotations

from typing import Any

import msgspec

from accord.core.monitoring.ledger import OUTCOMES, LedgerEntry
from accord.journal.ledger_records import ArchivedEntry
from accord.pipeline.data_skipping import select
from accord.pipeline.delta_log import TableSnapshot
from accord.pipeline.query.chunks import times_ms
from accord.pipeline.query.planner import Planner


def find_outcomes(
    planner: Planner, snapshot: TableSnapshot, node: str, number: int, most: int
) -> bytes:
    """What this node archived of event `number`: `ArchivedEntry`s as msgpack, at most so many."""
    files = select(snapshot.files, node=node, number=number)
    if not files or not number:
        return msgspec.msgpack.encode([])
    engine = planner.of_files(files)
    rows = engine.outcomes(snapshot, node, files, number, most)
    for name in ("received", "queued", "done"):
        rows = rows.set_column(rows.column_names.index(name), name, [times_ms(rows[name])])
    return msgspec.msgpack.encode([_entry(row) for row in rows.to_pylist()])


def _entry(row: dict[str, Any]) -> ArchivedEntry:
    outcome = row["outcome"]
    return ArchivedEntry(
        row["node"],
        LedgerEntry(
            number=row["number"],
            count=row["count"],
            channel=row["channel"],
            publisher=row["publisher"],
            destination=row["destination"],
            outcome=OUTCOMES.index(outcome) if outcome in OUTCOMES else len(OUTCOMES),
            received_ms=row["received"],
            queued_ms=row["queued"],
            done_ms=row["done"],
            size=row["bytes"],
            importance=row["importance"],
            policy=row["policy"],
            detail=row["detail"],
            sending_us=row["sending_us"],
        ),
    )
