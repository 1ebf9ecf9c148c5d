"""The network's changes of a time range, as this node recorded them in the ledger."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from accord.core.overlay.net_recorder import NET_CHANNEL
from accord.core.queries.messages import NetLookup
from accord.pipeline.delta_log import TableSnapshot
from accord.pipeline.query.chunks import times_ms
from accord.pipeline.query.datafusion_predicate import moment, quoted


def find_net_records(snapshot: TableSnapshot, node: str, asked: NetLookup) -> bytes:
    """Times in ms and records, the oldest first and at most so many, as msgpack."""
    if not snapshot.files:
        return msgspec.msgpack.encode([])
    query = (
        f"SELECT received, detail FROM ledger WHERE channel = {quoted(NET_CHANNEL)}"  # noqa: S608
        f" AND node = {quoted(node)} AND done >= {moment(1_000 * asked.since_ms)}"
        f" AND done < {moment(1_000 * asked.until_ms)} ORDER BY done, received LIMIT {asked.most}"
    )
    rows = pa.table(snapshot.engine.execute(query).read_all())
    details = rows["detail"].to_pylist()
    return msgspec.msgpack.encode(list(zip(times_ms(rows["received"]), details, strict=True)))
