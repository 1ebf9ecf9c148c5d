"""The archived outcomes of one event, from the table of outcomes.

Of the files, those are read whose range of numbers includes the event's: usually a few.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from accord.core.monitoring.ledger import OUTCOMES, LedgerEntry
from accord.journal.ledger_records import ArchivedEntry
from accord.pipeline.manifest import Snapshot
from accord.pipeline.pruning import select
from accord.pipeline.tables import LEDGER, read_files

_COLUMNS: Final = (
    "node", "number", "count", "channel", "publisher", "destination", "outcome", "importance",
    "policy", "detail", "sending_us", "bytes",
    "unix_millis(received) AS received", "unix_millis(queued) AS queued",
    "unix_millis(done) AS done",
)  # fmt: skip


def find_outcomes(
    spark: SparkSession, archive: str, snapshot: Snapshot, number: int, most: int
) -> bytes:
    """The entries of event `number`: `ArchivedEntry`s as msgpack, at most so many."""
    files = select(snapshot, table=LEDGER, number=number)
    if not files:
        return msgspec.msgpack.encode([])
    rows = (
        read_files(spark, archive, files)
        .where(f"number > 0 AND number <= {number} AND number + count > {number}")
        .selectExpr(*_COLUMNS)
        .limit(most)
        .toArrow()
    )
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
