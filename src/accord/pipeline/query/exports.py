"""Kept events as a file: CSV, JSON lines or Parquet, with the fields that `accord query` gives.

Bounded in events and bytes, because the file is made in memory and sent as one message.
"""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from accord.client.event_json import json_line
from accord.client.event_table import to_table
from accord.client.messages import ReceivedEvent, to_received
from accord.core.broker.kept_messages import result_message
from accord.core.monitoring.ledger import event_id
from accord.core.mqtt.codes import ProtocolError
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import read_block
from accord.core.queries.messages import ExportReply, ExportRequest, PageQuery, QueryHit
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.pages import QueryEngine

MAX_ROWS: Final = 50_000
MAX_BYTES: Final = 32 << 20
_PAGE: Final = 1_000
_PAGE_BYTES: Final = 4 << 20
_BINARY: Final = "payload_base64"
# A spreadsheet would run what begins so as a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def export(
    engine: QueryEngine, asked: ExportRequest, check_on: Callable[[], object] = lambda: None
) -> ExportReply:
    """The file; raises InvalidQueryError. `check_on` may raise to stop it."""
    for place, number, most in (("limit", asked.rows, MAX_ROWS), ("bytes", asked.bytes, MAX_BYTES)):
        if not 1 <= number <= most:
            raise InvalidQueryError(f"expected 1 to {most:,}, got {number:,}", place=place)
    events: list[ReceivedEvent] = []
    is_complete = True
    size = 0
    for found in _found(engine, asked, check_on):
        size += len(found.payload) + len(found.properties)
        if len(events) >= asked.rows or (events and size > asked.bytes):
            is_complete = False
            break
        events.append(_received(found))
    body = {"csv": _csv, "json": _json, "parquet": _parquet}[asked.format](events)
    return ExportReply(id=asked.id, body=body, events=len(events), is_complete=is_complete)


def _found(
    engine: QueryEngine, asked: ExportRequest, check_on: Callable[[], object]
) -> Iterator[QueryHit]:
    cursor = ""
    while True:
        page = PageQuery(id=0, ask=asked.ask, cursor=cursor, rows=_PAGE, bytes=_PAGE_BYTES)
        found = engine.page(page, check_on)
        yield from found.events
        cursor = found.cursor
        if not cursor:
            return
        check_on()


def _received(found: QueryHit) -> ReceivedEvent:
    try:
        properties = read_block(result_message(found, found.channel, None, found.received_ms).block)
    except ProtocolError as error:  # kept as received, but its properties can't be read
        return ReceivedEvent(
            id=event_id(found.number),
            channel=found.channel,
            payload=found.payload,
            received_ms=found.received_ms,
            is_kept=True,
            problem=str(error),
        )
    message = Publish(
        topic=found.channel, payload=found.payload, qos=found.qos, properties=properties
    )
    return to_received(message, found.received_ms)


def _json(events: Sequence[ReceivedEvent]) -> bytes:
    return b"".join(json_line(event) + b"\n" for event in events)


def _parquet(events: Sequence[ReceivedEvent]) -> bytes:
    stream = pa.BufferOutputStream()
    pyarrow.parquet.write_table(to_table(events), stream, compression="zstd")
    return bytes(stream.getvalue())


def _csv(events: Sequence[ReceivedEvent]) -> bytes:
    """The columns of the table; a payload that is not text is in `payload_base64`."""
    table = to_table(events)
    names = [name for name in table.column_names if name != "payload"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*(_cell(name) for name in names), "payload", _BINARY])
    for row in table.to_pylist():
        payload, binary = _payload(row["payload"])
        cells = [_cell(row[name]) for name in names]
        writer.writerow([*cells, _cell(payload), binary])
    return text.getvalue().encode()


def _payload(payload: bytes) -> tuple[str, str]:
    try:
        return payload.decode(), ""
    except UnicodeDecodeError:
        return "", b64encode(payload).decode()


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return _cell(value.decode(errors="replace"))
        case list():
            return _cell("; ".join(f"{name}={text}" for name, text in value))
        case str():
            return f"'{value}" if value.startswith(_FORMULA) else value
    return str(value)
