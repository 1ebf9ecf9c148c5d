"""Kept events as files: Arrow's stream format, CSV or JSON lines, a part at a time.

All parts together are the file. A part has so many events and about so many bytes at most, so that
memory is bounded here and at the node; nothing is kept between two parts. Parquet is written from
Arrow by whoever receives the parts, as it ends with a footer about all of them.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from accord.core.queries.messages import ExportFormat, ExportPart, ExportRequest, PageQuery
from accord.pipeline.query.checks import MAX_BYTES, InvalidQueryError
from accord.pipeline.query.event_rows import (
    FIELDS,
    MAX_COLUMNS,
    choose_columns,
    to_events,
)
from accord.pipeline.query.pages import MAX_TABLE_ROWS, QueryEngine
from accord.pipeline.tables import ATTRIBUTES, TablesError, check_declared

_WITHIN_MS: Final = 5_000  # after which a part ends early
_BINARY: Final = "payload_base64"
_FORMULA: Final = r"^[=+\-@\t\r]"  # a spreadsheet would run what begins so
_END: Final = 8  # bytes that end Arrow's stream


def export(
    engine: QueryEngine, asked: ExportRequest, check_on: Callable[[], object] = lambda: None
) -> ExportPart:
    """A part of the file; raises InvalidQueryError. `check_on` may raise to stop it."""
    for place, number, most in (
        ("rows", asked.rows, MAX_TABLE_ROWS),
        ("bytes", asked.bytes, MAX_BYTES),
    ):
        if not 1 <= number <= most:
            raise InvalidQueryError(f"expected 1 to {most:,}, got {number:,}", place=place)
    columns = _checked(asked.columns)
    page = PageQuery(
        id=0,
        ask=asked.ask,
        cursor=asked.cursor,
        rows=asked.rows,
        bytes=asked.bytes,
        within_ms=_WITHIN_MS,
    )
    rows, cursor = engine.rows(page, check_on)
    if not asked.cursor:
        columns = choose_columns(rows)
    check_on()
    body = _ENCODERS[asked.format](
        to_events(rows, columns), is_first=not asked.cursor, is_last=not cursor
    )
    return ExportPart(id=asked.id, body=body, events=len(rows), columns=columns, cursor=cursor)


def _checked(columns: dict[str, str]) -> dict[str, str]:
    """Columns come back with the cursor, from outside."""
    try:
        check_declared(columns)
    except TablesError as error:
        raise InvalidQueryError(str(error), place="cursor") from None
    if len(columns) > MAX_COLUMNS or {name.lower() for name in columns} & set(FIELDS):
        raise InvalidQueryError("expected the cursor of a part, as it came", place="cursor")
    return columns


def _arrow(events: pa.RecordBatch, *, is_first: bool, is_last: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, events.schema) as stream:
        if len(events):
            stream.write_batch(events)
    data = memoryview(sink.getvalue())
    head = 0 if is_first else events.schema.serialize().size
    return bytes(data[head : len(data) - (0 if is_last else _END)])


def _json(events: pa.RecordBatch, *, is_first: bool, is_last: bool) -> bytes:  # noqa: ARG001
    """Lines as `client.event_json` has them."""
    texts, others = _payloads(events["payload"])
    moments = pc.floor_temporal(events["received"], unit="millisecond").cast(pa.timestamp("ms"))
    received_ms = moments.cast(pa.int64())
    columns: list[tuple[str, Sequence[Any]]] = [
        ("channel", events["channel"].to_pylist()),
        ("attributes", _attributes(events)),
        ("payload", texts.to_pylist()),
        (_BINARY, others.to_pylist()),
        ("metadata", _decoded(events["metadata"]).to_pylist()),
        *((name, events[name].to_pylist()) for name in ("key", "deadline_ms")),
        *((name, received_ms.to_pylist()) for name in ("published_ms", "received_ms")),
        ("id", events["id"].to_pylist()),
        ("source", [each or None for each in events["publisher"].to_pylist()]),
    ]
    used = [(name, values) for name, values in columns if any(v is not None for v in values)]
    names = [name for name, _ in used]
    encoder = msgspec.json.Encoder()
    lines = bytearray()
    for row in zip(*(values for _, values in used), strict=True):
        found = {name: v for name, v in zip(names, row, strict=True) if v is not None}
        encoder.encode_into(found, lines, -1)
        lines += b"\n"
    return bytes(lines)


def _attributes(events: pa.RecordBatch) -> list[dict[str, Any]]:
    """All attributes of each event, whether they have columns or not."""
    found: list[dict[str, Any]] = [{} for _ in range(len(events))]
    for row, items in _entries(events[ATTRIBUTES]):
        found[row] = {name: _plain(value) for name, value in items}
    for name in events.schema.names[len(FIELDS) :]:
        values = events[name].to_pylist()
        if pa.types.is_timestamp(events[name].type):
            values = [_plain(value) for value in values]
        for own, value in zip(found, values, strict=True):
            if value is not None:
                own[name] = value
    return found


def _entries(maps: pa.Array) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """The rows whose map has entries, and these."""
    rows = np.flatnonzero(np.diff(maps.offsets.to_numpy()))
    for row, items in zip(rows.tolist(), maps.take(pa.array(rows)).to_pylist(), strict=True):
        yield row, [(n, next(v for v in s.values() if v is not None)) for n, s in items]


def _plain(value: Any) -> Any:
    return {"timestamp": _iso(value)} if isinstance(value, datetime) else value


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _decoded(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        found = column.to_pylist()
        return pa.array([None if e is None else e.decode(errors="replace") for e in found])


def _csv(events: pa.RecordBatch, *, is_first: bool, is_last: bool) -> bytes:  # noqa: ARG001
    """A payload that is not text is in `payload_base64`."""
    texts, others = _payloads(events["payload"])
    names = [name for name in events.schema.names if name != "payload"]
    columns = [_cells(name, events[name]) for name in names]
    table = pa.table(
        [*columns, _harmless(texts), others], names=[*map(_cell, names), "payload", _BINARY]
    )
    sink = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=is_first)
    pyarrow.csv.write_csv(table, sink, options)
    return sink.getvalue()


def _cells(name: str, column: pa.Array) -> pa.Array:
    if name == ATTRIBUTES:
        texts: list[str | None] = [None] * len(column)
        for row, items in _entries(column):
            texts[row] = "; ".join(f"{each}={_text(value)}" for each, value in items)
        return _harmless(pa.array(texts, pa.string()))
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_binary(column.type):
        column = _decoded(column)
    return _harmless(column) if pa.types.is_string(column.type) else column


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _iso(value) if isinstance(value, datetime) else str(value)


def _payloads(payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
    """As texts, and in base64 those that are none."""
    try:
        return payloads.cast(pa.string()), pa.nulls(len(payloads), pa.string())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        others: list[str | None] = []
        for each in payloads.to_pylist():
            try:
                texts.append(each.decode())
                others.append(None)
            except UnicodeDecodeError:
                texts.append(None)
                others.append(b64encode(each).decode())
        return pa.array(texts, pa.string()), pa.array(others, pa.string())


def _harmless(texts: pa.Array) -> pa.Array:
    """With an apostrophe before what would be a formula."""
    is_formula = pc.match_substring_regex(texts, _FORMULA)
    if not pc.any(is_formula).as_py():
        return texts
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)


def _cell(name: str) -> str:
    return f"'{name}" if name[:1] in "=+-@\t\r" else name


_ENCODERS: Final[dict[ExportFormat, Callable[..., bytes]]] = {
    "arrow": _arrow,
    "csv": _csv,
    "json": _json,
}
