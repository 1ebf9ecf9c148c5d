"""Warm-up: a query of our own makes Java load Spark's classes before the first client's query."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from accord.core.queries.messages import EventQuery, PageQuery
from accord.pipeline.archive_lookup import ArchiveLookup
from accord.pipeline.query_checks import check
from accord.pipeline.scan_plan import RemainingQuery, ScanRange
from accord.pipeline.tables import EVENTS, FileEntry, arrow_events

_FILE: Final = "warm.parquet"
_ROUNDS: Final = 3
_EVENT: Final = {
    "offset": 0,
    "number": 1,
    "channel": "a",
    "publisher": "",
    "received": 0,
    "qos": 0,
    "attributes": [("b", {"integer": 1})],
    "payload": b"",
    "payload_bytes": 0,
    "properties": b"",
}


def warm_up(spark: SparkSession, work: Path | str) -> None:
    """Query an event in a file of its own, with and without a predicate."""
    rows = pa.Table.from_pylist([_EVENT], arrow_events({}))
    pq.write_table(rows, Path(work) / _FILE)
    file = FileEntry(
        table=EVENTS,
        path=_FILE,
        day="1970-01-01",
        rows=1,
        bytes=1,
        node="",
        first_offset=0,
        last_offset=0,
        channels=("a",),
    )
    lookup = ArchiveLookup(spark, str(work))
    stretch = ScanRange((file,), 0, 1, True)
    for _ in range(_ROUNDS):
        for where in ("b > 0", ""):
            question = check(PageQuery(id=0, ask=EventQuery(channel="a", where=where)))
            found = lookup.find(question, RemainingQuery(0, 1, None), stretch, 10)
            assert len(found) == 1
