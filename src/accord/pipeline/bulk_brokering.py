"""Bulk brokering: events matched on Spark with a large set of registered predicates.

For loads beyond one node. A predicate means the same here and in a node's own index. Events are the
rows of a DataFrame, batch or streaming, with the columns of the event table (`tables`): `channel`,
attributes in columns of their own or in the map, `metadata`.

    predicates = compile_set([Registered(key="high", channel="uav/#", where="altitude_m > 300")])
    match(events, predicates)  # a row for each event and predicate that match

A set is compiled once, on the driver, and travels with the query. For a long-lived streaming query,
publish the set in a `PredicateFolder` that all workers see. Workers check for a newer version
between batches, so an event is matched with the set that is latest when its batch is processed.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from accord.core.model.errors import PredicateError
from accord.core.predicates.tree import Expr
from accord.pipeline.bulk.events import CHANNEL
from accord.pipeline.bulk.packed_sets import pack
from accord.pipeline.bulk.predicate_compiler import (
    SCHEMA,
    ParseAll,
    PredicateSet,
    Registered,
    RegistrationError,
    Texts,
    compile_set,
    compile_table,
    parse_here,
)
from accord.pipeline.bulk.predicate_folder import FolderError, PredicateFolder
from accord.pipeline.bulk.spark_worker import (
    PREDICATE,
    PREDICATES,
    BrokeringError,
    EmbeddedPredicates,
    FolderPredicates,
    MatchTask,
    PredicateSource,
    check_names,
)
from accord.pipeline.spark_tables import spark_events
from accord.pipeline.tables import ATTRIBUTES, COLUMNS, METADATA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "PREDICATE",
    "PREDICATES",
    "BrokeringError",
    "FolderError",
    "MatchSink",
    "PredicateFolder",
    "PredicateSet",
    "Registered",
    "RegistrationError",
    "broker_stream",
    "compile_frame",
    "compile_set",
    "compile_table",
    "match",
    "to_events",
]

PREFIX: Final = "matched/"
_ATTRIBUTE_TYPES: Final = (
    StringType,
    BooleanType,
    IntegralType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
_EVENT_TYPES: Final = {
    CHANNEL: StringType(),
    ATTRIBUTES: spark_events()[ATTRIBUTES].dataType,
    METADATA: BinaryType(),
}
# Below this number, parsing takes less time than starting a job.
_WORTH_A_JOB: Final = 2_000
_TEXTS_PER_TASK: Final = 5_000
_FEWEST_TASKS: Final = 8


def match(
    events: DataFrame,
    predicates: PredicateSet | PredicateFolder,
    *,
    declared: Collection[str] | None = None,
    columns: Collection[str] | None = None,
    explode: bool = True,
) -> DataFrame:
    """Return `events` with the keys of the predicates that match them.

    With `explode` there is a row for each match, its key in the column `predicate`; without, a row
    for each event, with all keys in a list `predicates`, the most important first. Only `columns`
    are forwarded, if given. Attributes with columns of their own are those `declared`, by default
    all columns that the event table does not have. Decimals are numbers, dates times at midnight in
    UTC; a predicate on a column of another type that values can't have is refused.
    """
    schema = events.schema
    forwarded = schema.names if columns is None else list(columns)
    added = PREDICATE if explode else PREDICATES
    _check(schema, declared or (), forwarded, added)
    names = [name for name in schema.names if name not in COLUMNS] if declared is None else declared
    refused = {name: problem for name in names if (problem := _problem(schema[name].dataType))}
    attributes = tuple(name for name in names if name not in refused)
    source = _source(predicates, refused)
    task = MatchTask(source, attributes, refused, tuple(forwarded), not explode)
    result = StructType([schema[name] for name in forwarded])
    result.add(added, StringType() if explode else ArrayType(StringType()))
    read = _columns_read(predicates, attributes) | {CHANNEL, *forwarded}
    wanted = ["`{}`".format(name.replace("`", "``")) for name in schema.names if name in read]
    return events.select(*wanted).mapInArrow(task, result)


def to_events(matched: DataFrame, prefix: str = PREFIX) -> DataFrame:
    """Convert matches to events to publish, each on the channel of its predicate.

    The channel is `prefix` and the predicate's key, with `_` for characters that channels can't
    contain. The column `predicate` becomes an attribute, and `matched_on` holds the event's
    channel.
    """
    key = F.regexp_replace(PREDICATE, "[+#\\x00]", "_")
    return matched.withColumns(
        {"matched_on": F.col(CHANNEL), CHANNEL: F.concat(F.lit(prefix), key)}
    )


class MatchSink(msgspec.Struct, frozen=True, kw_only=True):
    """Where matches of a stream are written: a Spark format, by default the one that publishes.

    That format needs the node's `url` in `options`. `trigger` is passed to
    `DataStreamWriter.trigger`.
    """

    checkpoint: str
    format: str = "accord"
    options: dict[str, str] = {}
    trigger: dict[str, Any] = {}


def broker_stream(
    events: DataFrame,
    predicates: PredicateSet | PredicateFolder,
    sink: MatchSink,
    *,
    prefix: str = PREFIX,
    declared: Collection[str] | None = None,
) -> StreamingQuery:
    """Match a stream of `events` and write the matches to `sink`, until the query is stopped.

    Each match becomes an event of its own, on its predicate's channel: see `to_events`.
    """
    matched = to_events(match(events, predicates, declared=declared), prefix)
    writer = matched.writeStream.format(sink.format).outputMode("append")
    writer = writer.options(**sink.options).option("checkpointLocation", sink.checkpoint)
    return (writer.trigger(**sink.trigger) if sink.trigger else writer).start()


def compile_frame(frame: DataFrame) -> PredicateSet:
    """Compile a DataFrame with the columns of `Registered`, of which only `key` is required.

    Texts that have to be parsed one by one are parsed in parallel by the workers.
    """
    table = frame.toArrow()
    for name, value in (("channel", "#"), ("where", ""), ("xpath", ""), ("importance", 0)):
        if name not in table.column_names:
            kind = SCHEMA.field(name).type
            table = table.append_column(name, pa.repeat(pa.scalar(value, kind), len(table)))
    return compile_table(table, _parse_on(frame.sparkSession))


def _parse_on(spark: SparkSession) -> ParseAll:
    def parse_all(texts: Texts) -> Iterator[Expr | PredicateError]:
        if len(texts) < _WORTH_A_JOB:
            yield from parse_here(texts)
            return
        wheres, xpaths = zip(*texts, strict=True)
        table = pa.table({"place": range(len(texts)), "where": wheres, "xpath": xpaths})
        tasks = max(_FEWEST_TASKS, len(texts) // _TEXTS_PER_TASK)
        frame = spark.createDataFrame(table).repartition(tasks)
        parsed = frame.mapInArrow(_parse_batches, "place long, tree binary").toArrow()
        trees: list[bytes | None] = [None] * len(texts)
        for place, tree in zip(
            parsed["place"].to_pylist(), parsed["tree"].to_pylist(), strict=True
        ):
            trees[place] = tree
        for number, tree in enumerate(trees):
            # Parse again here what failed there, to get the reason.
            yield pickle.loads(tree) if tree else parse_here([texts[number]])[0]  # noqa: S301

    return parse_all


def _parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts = [*zip(batch["where"].to_pylist(), batch["xpath"].to_pylist(), strict=True)]
        trees = [
            None if isinstance(tree, PredicateError) else pickle.dumps(tree)
            for tree in parse_here(texts)
        ]
        yield pa.record_batch({"place": batch["place"], "tree": pa.array(trees, pa.binary())})


def _source(
    predicates: PredicateSet | PredicateFolder, refused: Mapping[str, str]
) -> PredicateSource:
    if isinstance(predicates, PredicateFolder):
        # Problems are raised now rather than in a worker.
        check_names(predicates.read(predicates.latest()), refused)
        return FolderPredicates(str(predicates.path))
    check_names(predicates, refused)
    return EmbeddedPredicates(predicates.version, pack(predicates))


def _columns_read(
    predicates: PredicateSet | PredicateFolder, attributes: Collection[str]
) -> set[str]:
    """The columns that predicates need; all attributes for a folder, whose versions may differ."""
    read = {*attributes, ATTRIBUTES, METADATA}
    if isinstance(predicates, PredicateSet):
        read = {*predicates.names.intersection(attributes)}
        read |= {ATTRIBUTES} if predicates.names else set()
        read |= {METADATA} if predicates.has_paths else set()
    return read


def _problem(kind: DataType) -> str | None:
    """The name of a type that no attribute can have."""
    return None if isinstance(kind, _ATTRIBUTE_TYPES) else kind.simpleString()


def _check(
    schema: StructType, declared: Collection[str], forwarded: Collection[str], added: str
) -> None:
    known = ", ".join(schema.names)
    for name in (CHANNEL, *declared, *forwarded):
        if name not in schema.names:
            raise BrokeringError(f"expected a column {name!r}, got {known}")
    for name, expected in _EVENT_TYPES.items():
        if name in schema.names and schema[name].dataType != expected:
            found = schema[name].dataType.simpleString()
            raise BrokeringError(f"{name}: expected {expected.simpleString()}, got {found}")
    if added.lower() in (name.lower() for name in forwarded):
        raise BrokeringError(f"expected no column {added!r}, which is for what matches")
    for name in declared:
        if kind := _problem(schema[name].dataType):
            raise BrokeringError(
                f"{name}: expected strings, numbers, booleans, dates or times, got {kind}"
            )
