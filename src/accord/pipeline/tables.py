"""The tables of the archive: where their files are, which columns they have, how to read them.

    <archive>/_manifest/                                  which files are part of the tables
    <archive>/events/day=2026-11-16/group=uav/*.parquet   kept events, by day of arrival
    <archive>/ledger/day=2026-11-16/*.parquet             their outcomes, by day of outcome
    <archive>/payloads/day=2026-11-16/NODE-OFFSET         payloads too large for a table
    <archive>/unread/NODE-OFFSET                          records that are neither event nor ledger

Readers must use the manifest: after a crash the directories hold files that belong to no table, and
rows that are there twice, compacted and not. `day` and `group` are columns of the files too, so
that any Parquet reader accepts a plain list of files.

Each file knows which attributes were declared when it was written. `events` combines them into one
table: attributes declared later are taken from the map of other attributes.

Schema evolution: reads files written with other declared attributes as if with the wanted ones.

A column that is not wanted, or not with this type, returns to the map of other attributes; a
missing one is taken from it. The result equals archiving with the wanted declaration, except that a
value taken from the map also stays there, and that a number returns as the type of the column it
was in: 5 as 5.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from accord.core.model.errors import AccordError
from accord.pipeline.attributes import ATTRIBUTES, METADATA, PATHS

EVENTS: Final = "events"
LEDGER: Final = "ledger"
LOST: Final = "lost"
PAYLOADS: Final = "payloads"
UNREAD: Final = "unread"
MANIFEST: Final = "_manifest"

OTHER: Final = "_other"  # the group for channels beyond the group limit
MAX_GROUPS: Final = 64
MAX_CHANNELS: Final = 64
LAST_MS: Final = 253_402_300_799_999  # end of the year 9999

Stat = int | float | str | bool | None
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
    "day": pa.date32(),
    "group": pa.string(),
}
_LEDGER: Final[dict[str, pa.DataType]] = {
    "node": pa.string(),
    "offset": pa.int64(),
    "number": pa.int64(),
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
    "day": pa.date32(),
}
COLUMNS: Final = frozenset({*_BEFORE, *_AFTER})

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_REFERENCE: Final = re.compile(r"payloads/day=\d{4}-\d{2}-\d{2}/[A-Za-z0-9_-]+")


class TablesError(AccordError):
    """A table can't be read or written as requested."""


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a table, with the statistics by which readers skip it.

    First and last are inclusive. For the ledger they span all times and numbers of an entry.
    `channels` is None if there are too many to list. `stats` has the lowest and highest value of
    declared attributes, times in microseconds; both None means no values at all.
    """

    table: str
    path: str  # relative to the archive
    day: str
    group: str = ""
    rows: int
    bytes: int
    raw_bytes: int = 0  # uncompressed: its size in memory
    node: str
    first_ms: int = 0
    last_ms: int = 0
    first_offset: int
    last_offset: int
    first_number: int = 0
    last_number: int = 0
    channels: tuple[str, ...] | None = None
    use: tuple[tuple[int, int], ...] = ()  # by channel, as archived: events, payload bytes
    declared: dict[str, str] = {}
    stats: dict[str, tuple[Stat, Stat]] = {}
    unread: int = 0  # rows that can't be decoded as events, kept as received


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


def group_of(channel: str) -> str:
    """The directory for events of `channel`: its first level, or a hash of it."""
    level = channel.partition("/")[0]
    if _PLAIN.fullmatch(level) and not level.startswith("_"):
        return level
    return f"_{crc32(level.encode()) & 0xFF:02x}"


def day_of(ms: int) -> str:
    return _moment(ms).strftime("%Y-%m-%d")


def day_end_ms(day: str) -> int:
    """The end of the day."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return int(start.timestamp() * 1000) + 86_400_000


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(ms, 0), LAST_MS) // 1000, UTC)


def safe_name(node: str) -> str:
    """`node` as part of a file name; distinct nodes stay distinct."""
    if _PLAIN.fullmatch(node):
        return node
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', node)[:40]}-{crc32(node.encode()):08x}"


def directory_of(table: str, day: str, group: str) -> str:
    """Directory of a table's files, relative to the archive."""
    return f"{table}/day={day}/group={group}" if table == EVENTS else f"{table}/day={day}"


def payload_ref(node: str, offset: int, received_ms: int) -> str:
    """Path of a large payload, relative to the archive; deterministic."""
    return f"{PAYLOADS}/day={day_of(received_ms)}/{safe_name(node)}-{offset}"


def read_payload(archive: Path | str, ref: str) -> bytes:
    """Read the payload at `payload_ref`; TablesError if it does not exist (any more)."""
    if not _REFERENCE.fullmatch(ref):
        raise TablesError(f"expected a reference to a payload, got {ref[:80]!r}")
    try:
        return (Path(archive) / ref).read_bytes()
    except FileNotFoundError:
        raise TablesError(f"{ref}: the payload is not kept any more") from None


def arrow_events(declared: Mapping[str, str]) -> pa.Schema:
    columns = {name: ARROW[kind] for name, kind in declared.items()}
    return pa.schema([*_BEFORE.items(), *columns.items(), *_AFTER.items()])


def arrow_ledger() -> pa.Schema:
    return pa.schema(list(_LEDGER.items()))


def spark_events(declared: Mapping[str, str]) -> StructType:
    return from_arrow_schema(arrow_events(declared), prefer_timestamp_ntz=False)


def spark_ledger() -> StructType:
    return from_arrow_schema(arrow_ledger(), prefer_timestamp_ntz=False)


def by_declared(files: Iterable[FileEntry]) -> list[tuple[dict[str, str], list[FileEntry]]]:
    """Group files by their declared attributes."""
    found: dict[tuple[tuple[str, str], ...], list[FileEntry]] = {}
    for file in files:
        found.setdefault(tuple(sorted(file.declared.items())), []).append(file)
    return [(dict(key), each) for key, each in found.items()]


def newest_declared(files: Iterable[FileEntry]) -> dict[str, str]:
    """All attributes declared in any of them, with their latest types."""
    found: dict[str, str] = {}
    for file in sorted(files, key=lambda each: (each.last_ms, each.last_offset)):
        found |= file.declared
    return found


def read_files(spark: SparkSession, archive: Path | str, files: Sequence[FileEntry]) -> DataFrame:
    """Read files of one table, written with the same declared attributes, unchanged."""
    table, declared = files[0].table, files[0].declared
    schema = spark_events(declared) if table == EVENTS else spark_ledger()
    paths = [str(Path(archive).absolute() / file.path) for file in files]
    return spark.read.schema(schema).parquet(*paths)


def events(
    spark: SparkSession,
    archive: Path | str,
    files: Iterable[FileEntry] | None = None,
    declared: Mapping[str, str] | None = None,
) -> DataFrame:
    """The kept events, of the whole archive or of some of its files.

    `declared` are the attributes to have as columns; by default all that are declared in any file,
    with their latest types. A value that its column can't hold is in the map.
    """
    chosen = _all(archive, EVENTS) if files is None else list(files)
    wanted = newest_declared(chosen) if declared is None else dict(declared)
    check_declared(wanted)
    if not chosen:
        return _empty(spark, spark_events(wanted))
    parts = [
        conform(read_files(spark, archive, each), had, wanted) for had, each in by_declared(chosen)
    ]
    return reduce(lambda left, right: left.unionByName(right), parts)


def ledger(
    spark: SparkSession, archive: Path | str, files: Iterable[FileEntry] | None = None
) -> DataFrame:
    """The outcomes of events, of the whole archive or of some of its files."""
    chosen = _all(archive, LEDGER) if files is None else list(files)
    if not chosen:
        return _empty(spark, spark_ledger())
    return read_files(spark, archive, chosen)


def _empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """An empty table without a Spark job, which `createDataFrame` would need."""
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in schema)
    return spark.range(0).select(*nothing)


def _all(archive: Path | str, table: str) -> list[FileEntry]:
    from accord.pipeline.manifest import Manifest  # noqa: PLC0415 (stands on this module)

    return [file for file in Manifest(archive).snapshot().files if file.table == table]


def conform(frame: DataFrame, had: Mapping[str, str], wanted: Mapping[str, str]) -> DataFrame:
    """Convert `frame` from the declared attributes `had` to those `wanted`."""
    columns = arrow_events(wanted).names
    gone = {name: kind for name, kind in had.items() if wanted.get(name) != kind}
    attributes = F.col(ATTRIBUTES)
    if gone:
        attributes = _restore(attributes, gone)
    chosen = [
        (
            attributes.alias(name)
            if name == ATTRIBUTES
            else _quoted(name)
            if name not in wanted or had.get(name) == wanted[name]
            else _extract(attributes[name], wanted[name]).alias(name)
        )
        for name in columns
    ]
    return frame.select(*chosen)


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _restore(attributes: Column, gone: Mapping[str, str]) -> Column:
    """Return values of unwanted columns to the other attributes."""
    entries = [
        F.struct(
            F.lit(name).alias("key"),
            F.struct(
                *(
                    (_quoted(name) if field == kind else F.lit(None).cast(_sql(field))).alias(field)
                    for field in ARROW
                )
            ).alias("value"),
        )
        for name, kind in gone.items()
    ]
    present = F.filter(F.array(*entries), lambda entry: ~_is_empty(entry["value"]))
    return F.map_concat(attributes, F.map_from_entries(present))


def _is_empty(value: Column) -> Column:
    return reduce(lambda left, right: left & right, (value[field].isNull() for field in ARROW))


def _extract(value: Column, kind: str) -> Column:
    """What a column of this type would have held of `value`: see `attributes.to_row`."""
    own = value[kind]
    if kind == "float":
        whole = value["integer"]
        exact = F.when(whole.cast("double").cast("decimal(38,0)") == whole, whole.cast("double"))
        return F.coalesce(own, exact)
    if kind == "integer":
        real = value["float"]
        is_whole = (real == F.rint(real)) & (real >= -(2.0**63)) & (real < 2.0**63)
        return F.coalesce(own, F.when(is_whole, real.try_cast("bigint")))
    return own


def _sql(field: str) -> str:
    return {"integer": "bigint", "float": "double"}.get(field, field)
