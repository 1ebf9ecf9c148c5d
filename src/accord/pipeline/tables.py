"""The tables of the archive: which columns they have, and where their files are.

    <archive>/events/_delta_log/                          which files are the table, by Delta Lake
    <archive>/events/day=2026-11-16/*.parquet             kept events, by day of arrival
    <archive>/events/_payloads/day=2026-11-16/NODE-OFFSET payloads too large for a table
    <archive>/ledger/day=2026-11-16/*.parquet             their outcomes, by day of outcome
    <archive>/_unread/NODE-OFFSET                         records that are neither event nor ledger

A declared attribute has a column of its own, which its field's metadata names: `AttributeColumn`. A
column's type never changes. An attribute that is declared with another type later gets another
column, and a value that its column can't hold stays in the map `attributes`: the value of an
attribute is what one of its columns has, else what the map has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from zlib import crc32

import msgspec
import pyarrow as pa

from accord.core.model.errors import AccordError

EVENTS: Final = "events"
LEDGER: Final = "ledger"
UNREAD: Final = "_unread"
PAYLOADS: Final = f"{EVENTS}/_payloads"
FORMER_PAYLOADS: Final = "payloads"  # where they were before the tables were Delta tables
ATTRIBUTES: Final = "attributes"
METADATA: Final = "metadata"
PATHS: Final = "paths"
PARTITION: Final = "day"
LAST_MS: Final = 253_402_300_799_999  # end of the year 9999

Stat = int | float | str | bool | None
Bounds = tuple[Stat, Stat]
ARROW: Final[dict[str, pa.DataType]] = {
    "integer": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_TIME: Final = ARROW["timestamp"]
VALUE: Final = pa.struct(list(ARROW.items()))
ATTRIBUTES_TYPE: Final = pa.map_(pa.string(), VALUE)
PATHS_TYPE: Final = pa.map_(pa.string(), pa.list_(pa.string()))

_BEFORE: Final[dict[str, pa.DataType]] = {
    "node": pa.string(),
    "offset": pa.int64(),
    "number": pa.int64(),
    "channel": pa.string(),
    "publisher": pa.string(),
    "received": _TIME,
    "qos": pa.int32(),
    "key": pa.string(),
    "deadline_ms": pa.int64(),
    "content_type": pa.string(),
}
_AFTER: Final[dict[str, pa.DataType]] = {
    ATTRIBUTES: ATTRIBUTES_TYPE,
    METADATA: pa.binary(),
    PATHS: PATHS_TYPE,
    "payload": pa.binary(),
    "payload_bytes": pa.int64(),
    "payload_ref": pa.string(),
    "properties": pa.binary(),
    PARTITION: pa.date32(),
}
_LEDGER: Final[dict[str, pa.DataType]] = {
    "node": pa.string(),
    "offset": pa.int64(),
    "number": pa.int64(),
    "last_number": pa.int64(),
    "id": pa.string(),
    "count": pa.int64(),
    "channel": pa.string(),
    "publisher": pa.string(),
    "destination": pa.string(),
    "outcome": pa.string(),
    "received": _TIME,
    "queued": _TIME,
    "done": _TIME,
    "bytes": pa.int64(),
    "importance": pa.int32(),
    "policy": pa.string(),
    "detail": pa.string(),
    "sending_us": pa.int64(),
    PARTITION: pa.date32(),
}
COLUMNS: Final = frozenset({*_BEFORE, *_AFTER})
_ATTRIBUTE: Final = b"accord.attribute"

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_UNFIT: Final = re.compile(r"[^\w.-]")  # in the name of a column of a Delta table
_REFERENCE: Final = re.compile(
    rf"({PAYLOADS}|{FORMER_PAYLOADS})/{PARTITION}=\d{{4}}-\d{{2}}-\d{{2}}/[A-Za-z0-9_-]+"
)


class TablesError(AccordError):
    """A table can't be read or written as requested."""


class AttributeColumn(msgspec.Struct, frozen=True, array_like=True):
    """The column `name` holds values of `attribute` that have type `kind`."""

    attribute: str
    name: str
    kind: str


Columns = tuple[AttributeColumn, ...]


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table, with the statistics by which readers skip it.

    First and last are inclusive. For the ledger they span all times and numbers of an entry.
    `stats` has the lowest and highest value of columns of attributes, times in microseconds: both
    None if the column has no values, and no bounds if they are not known. A column that is not in
    it does not tell the whole: the map may have values of its attribute too.
    """

    path: str  # relative to the table
    day: str
    rows: int
    bytes: int
    node: str = ""  # empty: of several
    first_ms: int = 0
    last_ms: int = LAST_MS
    first_offset: int = 0
    last_offset: int = (1 << 63) - 1
    first_number: int = 0
    last_number: int = (1 << 63) - 1
    channels: tuple[str, str] | None = None  # the first and the last by name, or beyond them
    unread: int = 0  # rows that can't be decoded as events, kept as received
    largest: int = LAST_MS  # bytes of a payload at most, in the file or not
    stats: dict[str, Bounds | None] = {}


def check_declared(declared: Mapping[str, str]) -> None:
    """Raise TablesError if a table can't have these columns."""
    taken = {name.lower(): name for name in COLUMNS}
    for name, kind in declared.items():
        if kind not in ARROW:
            raise TablesError(f"attribute {name!r}: expected {', '.join(ARROW)}, got {kind!r}")
        if not name:
            raise TablesError("expected an attribute's name, got none")
        if other := taken.get(name.lower()):
            raise TablesError(f"attribute {name!r}: there is a column {other!r}, in any case")
        taken[name.lower()] = name


def columns_for(declared: Mapping[str, str], present: Columns) -> Columns:
    """The columns of the declared attributes, those `present` in the table where they fit."""
    known = {(each.attribute, each.kind): each for each in present}
    taken = {name.lower() for name in COLUMNS} | {each.name.lower() for each in present}
    found = []
    for attribute, kind in declared.items():
        column = known.get((attribute, kind))
        if column is None:
            column = AttributeColumn(attribute, _free_name(attribute, kind, taken), kind)
            taken.add(column.name.lower())
        found.append(column)
    return tuple(found)


def _free_name(attribute: str, kind: str, taken: set[str]) -> str:
    plain = _UNFIT.sub("_", attribute)
    name, number = plain, 1
    while name.lower() in taken:
        name = f"{plain}_{kind}" if number == 1 else f"{plain}_{kind}_{number}"
        number += 1
    return name


def field_of(column: AttributeColumn) -> pa.Field:
    return pa.field(
        column.name, ARROW[column.kind], metadata={_ATTRIBUTE: column.attribute.encode()}
    )


def columns_of_schema(schema: pa.Schema) -> Columns:
    """The columns of attributes that a table with this schema has."""
    kinds = {kind: name for name, kind in ARROW.items()}
    return tuple(
        AttributeColumn(field.metadata[_ATTRIBUTE].decode(), field.name, kinds[field.type])
        for field in schema
        if field.metadata and _ATTRIBUTE in field.metadata
    )


def by_attribute(columns: Iterable[AttributeColumn]) -> dict[str, Columns]:
    found: dict[str, Columns] = {}
    for column in columns:
        found[column.attribute] = (*found.get(column.attribute, ()), column)
    return found


def day_of(ms: int) -> str:
    moment = datetime.fromtimestamp(min(max(ms, 0), LAST_MS) // 1000, UTC)
    return moment.strftime("%Y-%m-%d")


def day_end_ms(day: str) -> int:
    """The end of the day."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return int(start.timestamp() * 1000) + 86_400_000


def safe_name(node: str) -> str:
    """`node` as part of a file name; distinct nodes stay distinct."""
    if _PLAIN.fullmatch(node):
        return node
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', node)[:40]}-{crc32(node.encode()):08x}"


def payload_ref(node: str, offset: int, received_ms: int) -> str:
    """Path of a large payload, relative to the archive; deterministic."""
    return f"{PAYLOADS}/day={day_of(received_ms)}/{safe_name(node)}-{offset}"


def is_payload_ref(ref: str) -> bool:
    return _REFERENCE.fullmatch(ref) is not None


def arrow_events(columns: Columns | Mapping[str, str] = ()) -> pa.Schema:
    """The columns of the events table, with those of attributes.

    A mapping names attributes instead, and their types, as rows have them before their file is
    written.
    """
    own: Sequence[pa.Field]
    if isinstance(columns, Mapping):
        own = [pa.field(name, ARROW[kind]) for name, kind in columns.items()]
    else:
        own = [field_of(each) for each in columns]
    before, after = pa.schema(list(_BEFORE.items())), pa.schema(list(_AFTER.items()))
    return pa.schema([*before, *own, *after])


def arrow_ledger() -> pa.Schema:
    return pa.schema(list(_LEDGER.items()))
