"""Kept events as files: Arrow's stream format, CSV or JSON lines, a part at a time.

All parts together are the file. A part has so many events and about so many bytes at most, so that
memory is bounded here and at the node; nothing is kept between two parts. Parquet is written from
Arrow by whoever receives the parts, as it ends with a footer about all of them.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
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
    for place, number, most in (("rows", asked.rows, MAX_TABLE_ROWS), ("bytes", asked.bytes, MAX_BYTES)):
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
    names = [name for name in events.schema.names if name not in FIELDS]
    attributes = _attributes(events, names)
    rows = events.select([name for name in FIELDS if name != ATTRIBUTES]).to_pylist()
    lines = bytearray()
    encoder = msgspec.json.Encoder()
    for row, own in zip(rows, attributes, strict=True):
        lines += encoder.encode(_fields(row, own))
        lines += b"\n"
    return bytes(lines)


def _attributes(events: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """All attributes of each event, whether they have columns or not."""
    found: list[dict[str, Any]] = [{} for _ in range(len(events))]
    for row, items in enumerate(events[ATTRIBUTES].to_pylist()):
        for name, value in items or ():
            found[row][name] = _plain(next(v for v in value.values() if v is not None))
    for name in names:
        for row, value in enumerate(events[name].to_pylist()):
            if value is not None:
                found[row][name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    return {"timestamp": _iso(value)} if isinstance(value, datetime) else value


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _fields(row: Mapping[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"channel": row["channel"], "attributes": attributes}
    try:
        fields["payload"] = row["payload"].decode()
    except UnicodeDecodeError:
        fields[_BINARY] = b64encode(row["payload"]).decode()
    if row["metadata"] is not None:
        fields["metadata"] = row["metadata"].decode(errors="replace")
    for name in ("key", "deadline_ms"):
        if row[name] is not None:
            fields[name] = row[name]
    ms = round(row["received"].timestamp() * 1_000)
    fields |= {"published_ms": ms, "received_ms": ms, "id": row["id"]}
    if row["publisher"]:
        fields["source"] = row["publisher"]
    return fields


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
        return _harmless(pa.array(map(_items, column.to_pylist()), pa.string()))
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_binary(column.type):
        texts = (None if each is None else each.decode(errors="replace") for each in column.to_pylist())
        column = pa.array(texts, pa.string())
    return _harmless(column) if pa.types.is_string(column.type) else column


def _items(items: list[tuple[str, dict[str, Any]]] | None) -> str | None:
    found = [
        f"{name}={_text(next(each for each in value.values() if each is not None))}"
        for name, value in items or ()
    ]
    return "; ".join(found) or None


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
