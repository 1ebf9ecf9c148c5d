"""Small tables of events and of the ledger, for tests with answers worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from accord.pipeline.tables import arrow_events, arrow_ledger

START_MS: Final = 1_763_300_000_000
_START: Final = datetime.fromtimestamp(START_MS / 1_000, UTC)


def at(ms: int) -> datetime:
    """So many milliseconds after START_MS."""
    return _START + timedelta(milliseconds=ms)


def entry(outcome: str = "delivered", **fields: Any) -> dict[str, Any]:
    """An entry of the ledger, received at 0; `waited_ms` in the outbox, from `queued_ms` on."""
    received_ms = fields.pop("received_ms", 0)
    queued_ms = fields.pop("queued_ms", received_ms)
    done_ms = queued_ms + fields.pop("waited_ms", 0)
    usual = {
        "node": "n1",
        "number": 1,
        "count": 1,
        "channel": "uav/imagery",
        "publisher": "uav-1",
        "destination": "patrol-1",
        "outcome": outcome,
        "received": at(received_ms),
        "queued": at(queued_ms),
        "done": at(done_ms),
        "bytes": 100,
        "policy": "",
        "detail": "",
    }
    return usual | fields


def event(received_ms: int = 0, **fields: Any) -> dict[str, Any]:
    """A kept event."""
    usual = {
        "node": "n1",
        "number": 1,
        "channel": "uav/imagery",
        "publisher": "uav-1",
        "received": at(received_ms),
        "attributes": {},
        "payload_bytes": 100,
    }
    return usual | fields


def ledger_frame(spark: SparkSession, *entries: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(list(entries), arrow_ledger()))


def event_frame(spark: SparkSession, *events: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([event_batch(*events)]))


def event_batch(*events: dict[str, Any]) -> pa.RecordBatch:
    rows = [row | {"attributes": list(row["attributes"].items())} for row in events]
    return pa.RecordBatch.from_pylist(rows, arrow_events({}))
