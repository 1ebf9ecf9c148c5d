"""The tables of the archive in Spark: which files are read, and their columns.

The files are those of a snapshot, by name: Spark lists nothing, and reads no log. Their schema is
given, so that nothing is inferred; a column that a file does not have is null in it, and its day is
that of the time by which it is partitioned.

Of an object store, Spark reads files itself if its cluster has Hadoop's connector for it. Otherwise
Python tasks read them with the credentials that this process has, which takes about three times as
long: all columns of a file are read, also those that a query does not need.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from accord.pipeline.storage import Storage
from accord.pipeline.tables import (
    ARROW,
    ATTRIBUTES,
    EVENTS,
    LEDGER,
    PARTITION,
    Columns,
    TableFile,
    arrow_events,
    arrow_ledger,
    by_attribute,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from accord.pipeline.delta_log import TableSnapshot

_HADOOP: Final = {"s3": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "abfs"}
_BATCH_ROWS: Final = 4_096
_TIME: Final = {EVENTS: "received", LEDGER: "done"}
_log: Final = logging.getLogger(__name__)
_native: WeakKeyDictionary[SparkSession, dict[str, bool]] = WeakKeyDictionary()


def spark_events(columns: Columns | Mapping[str, str] = ()) -> StructType:
    return from_arrow_schema(arrow_events(columns), prefer_timestamp_ntz=False)


def spark_ledger() -> StructType:
    return from_arrow_schema(arrow_ledger(), prefer_timestamp_ntz=False)


def events(
    spark: SparkSession,
    storage: Storage,
    snapshot: TableSnapshot,
    files: Iterable[TableFile] | None = None,
) -> DataFrame:
    """The kept events, of the whole table or of some of its files."""
    return _read(spark, storage, EVENTS, arrow_events(snapshot.columns), _all(snapshot, files))


def ledger(
    spark: SparkSession,
    storage: Storage,
    snapshot: TableSnapshot,
    files: Iterable[TableFile] | None = None,
) -> DataFrame:
    """The outcomes of events, of the whole table or of some of its files."""
    return _read(spark, storage, LEDGER, arrow_ledger(), _all(snapshot, files))


def with_all_attributes(events: DataFrame, columns: Columns) -> DataFrame:
    """Events whose map has the values of the columns too, for those that read only the map."""
    if not columns:
        return events
    entries = [
        F.struct(
            F.lit(each.attribute).alias("key"),
            F.struct(
                *(
                    (_column(each.name) if kind == each.kind else _null(kind)).alias(kind)
                    for kind in ARROW
                )
            ).alias("value"),
        )
        for each in columns
    ]
    present = F.filter(F.array(*entries), lambda entry: ~_is_empty(entry["value"]))
    return events.withColumn(
        ATTRIBUTES, F.map_concat(F.col(ATTRIBUTES), F.map_from_entries(present))
    )


def unified(events: DataFrame, columns: Columns) -> DataFrame:
    """Events with one column for each declared attribute, and all of them in the map.

    The column has the last type declared: the value of a column of the table, else of the map.
    """
    events = with_all_attributes(events, columns)
    values = {name: _value_of(own) for name, own in by_attribute(columns).items()}
    names = {each.name for each in columns}
    kept = [_column(name) for name in events.columns if name not in names]
    return events.select(*kept, *(value.alias(name) for name, value in values.items()))


def _value_of(columns: Columns) -> Column:
    """The value of an attribute as the last of its columns holds it: floats hold integers."""
    last = columns[-1]
    found = []
    for kind in (last.kind, *(("integer",) if last.kind == "float" else ())):
        found += [_column(each.name) for each in columns if each.kind == kind]
        found.append(F.col(ATTRIBUTES)[last.attribute][kind])
    return F.coalesce(*found)


def _is_empty(value: Column) -> Column:
    return reduce(lambda left, right: left & right, (value[kind].isNull() for kind in ARROW))


def _null(kind: str) -> Column:
    return F.lit(None).cast(spark_events({"it": kind})["it"].dataType)


def _column(name: str) -> Column:
    return F.col("`{}`".format(name.replace("`", "``")))


def _all(snapshot: TableSnapshot, files: Iterable[TableFile] | None) -> Sequence[TableFile]:
    return snapshot.files if files is None else list(files)


def _read(
    spark: SparkSession, storage: Storage, table: str, schema: pa.Schema, files: Sequence[TableFile]
) -> DataFrame:
    whole = from_arrow_schema(schema, prefer_timestamp_ntz=False)
    if not files:  # without a Spark job, which `createDataFrame` would need
        nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in whole)
        return spark.range(0).select(*nothing)
    paths = [f"{table}/{file.path}" for file in files]
    frame = _parquet(spark, storage, whole, paths)
    if frame is None:
        frame = _through_python(spark, storage, schema, whole, paths)
    day = f"date_from_unix_date(CAST(unix_millis({_TIME[table]}) DIV 86400000 AS INT))"
    return frame.withColumn(PARTITION, F.expr(day))


def _parquet(
    spark: SparkSession, storage: Storage, schema: StructType, paths: Sequence[str]
) -> DataFrame | None:
    """The files as Spark reads them; None if it has no connector for the object store."""
    if storage.is_local:
        return spark.read.schema(schema).parquet(*map(storage.uri_of, paths))
    scheme, _, place = storage.uri.partition("://")
    known = _native.setdefault(spark, {})
    if scheme not in _HADOOP or known.get(scheme) is False:
        return None
    try:
        found = spark.read.schema(schema).parquet(
            *(f"{_HADOOP[scheme]}://{place}/{path}" for path in paths)
        )
    except Exception as error:  # from Java, or from the cluster through Spark Connect
        if known.get(scheme):
            raise
        _log.warning(
            "Spark can't read %s:// by itself (%s): Python tasks read the archive, which takes"
            " about three times as long; hadoop-aws or its like on the cluster helps",
            scheme,
            str(error).partition("\n")[0][:200],
        )
        known[scheme] = False
        return None
    known[scheme] = True
    return found


def _through_python(
    spark: SparkSession,
    storage: Storage,
    schema: pa.Schema,
    whole: StructType,
    paths: Sequence[str],
) -> DataFrame:
    listed = spark.createDataFrame([(path,) for path in paths], "path string")
    uri = storage.uri

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = Storage(uri)
        for batch in batches:
            for path in batch["path"].to_pylist():
                with here.filesystem.open_input_file(path) as file:
                    for rows in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
                        yield conformed(rows, schema)

    tasks = min(len(paths), spark_tasks(spark))
    return listed.repartition(tasks).mapInArrow(read, whole)


def spark_tasks(spark: SparkSession) -> int:
    """How many tasks a scan should have."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of this schema; null where there are none."""
    names = set(rows.schema.names)
    arrays: list[Any] = [
        rows[field.name].cast(field.type)
        if field.name in names
        else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
