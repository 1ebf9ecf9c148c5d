"""The network's changes of a time range, as this node recorded them in the ledger."""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from accord.core.overlay.net_recorder import NET_CHANNEL
from accord.core.queries.messages import NetLookup
from accord.pipeline.datasets.losses import between
from accord.pipeline.manifest import Snapshot
from accord.pipeline.pruning import select
from accord.pipeline.tables import LEDGER, ledger


def find_net_records(
    spark: SparkSession, archive: str, snapshot: Snapshot, node: str, asked: NetLookup
) -> bytes:
    """Times in ms and records, the oldest first and at most so many, as msgpack."""
    since_ms, until_ms = asked.since_ms, asked.until_ms
    files = select(
        snapshot, table=LEDGER, channel=NET_CHANNEL, since_ms=since_ms, until_ms=until_ms, node=node
    )
    records = between(ledger(spark, archive, files), "done", since_ms, until_ms)
    rows = (
        records.where((F.col("channel") == NET_CHANNEL) & (F.col("node") == node))
        .orderBy("done", "received")
        .limit(asked.most)
        .select(F.unix_millis("received").alias("at"), "detail")
        .toArrow()
        .to_pydict()
    )
    return msgspec.msgpack.encode(list(zip(rows["at"], rows["detail"], strict=True)))
