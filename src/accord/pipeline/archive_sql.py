"""SQL and DataFrames over an archive, for notebooks and for `accord sql`.

    tables = accord.pipeline.connect("accord-data/archive")
    tables.events.where("channel = 'demo/pump/7'").groupBy("site").count()
    tables.sql("SELECT channel, sum(count) FROM ledger GROUP BY channel")

A declared attribute is one column here, whatever it was declared as over time: it has the value of
one of its columns in the table, else what the map has of its type. The map has all attributes.

Queries only read: each is put in brackets, where no other statement can stand. Line numbers of
errors are those of the query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from accord.core.model.errors import AccordError
from accord.core.queries.messages import StartPipeline
from accord.pipeline.delta_log import Archive
from accord.pipeline.tables import (
    ATTRIBUTES,
    EVENTS,
    LEDGER,
    Columns,
    arrow_events,
    by_attribute,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATASETS: Final = ("quality", "losses", "uses", "channel_rates", "availability")
_FILES: Final = "events_as_stored"
_HOUR_S: Final = 3_600
_SPARK_PLACE: Final = re.compile(r"line (\d+),? pos (\d+)")
_DATAFUSION_PLACE: Final = re.compile(r" at Line: (\d+), Column: (\d+)")
_PREFIX: Final = re.compile(r"^(SQL error: ParserError\(\"|Schema error: |Error during planning: )")
_FIELD: Final = re.compile(r"No field named (\S+?)\.(?:\s|$)")
_TABLE: Final = re.compile(r"table '(?:\w+\.)*(\w+)' not found")


class SqlError(AccordError):
    """A query that can't be answered; `place` is where in it."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        self.problem = problem
        self.place = f"line {line}, column {column}" if line else "SQL"
        super().__init__(f"{self.place}: {problem}")


class ArchiveTables:
    """The tables of an archive in a Spark session, as they are when they are asked for."""

    def __init__(self, archive: str | Path, spark: SparkSession) -> None:
        self.spark = spark
        self._archive = opened(archive)

    @property
    def events(self) -> DataFrame:
        from accord.pipeline import spark_tables  # noqa: PLC0415 (it needs Spark, as below)

        snapshot = self._archive.events.snapshot()
        frame = spark_tables.events(self.spark, self._archive.storage, snapshot)
        return spark_tables.unified(frame, snapshot.columns)

    @property
    def ledger(self) -> DataFrame:
        from accord.pipeline import spark_tables  # noqa: PLC0415

        snapshot = self._archive.ledger.snapshot()
        return spark_tables.ledger(self.spark, self._archive.storage, snapshot)

    def dataset(self, name: str) -> DataFrame:
        """One of DATASETS; rates are by the hour."""
        from accord.pipeline.datasets.availability import (  # noqa: PLC0415
            availability,
            sightings,
        )
        from accord.pipeline.datasets.losses import channel_rates, losses, uses  # noqa: PLC0415
        from accord.pipeline.datasets.quality import quality_over_time  # noqa: PLC0415

        makers: dict[str, Callable[[], DataFrame]] = {
            "quality": lambda: quality_over_time(
                self.ledger, "channel", "destination", every_s=_HOUR_S
            ),
            "losses": lambda: losses(self.ledger),
            "uses": lambda: uses(self.ledger),
            "channel_rates": lambda: channel_rates(self.events, every_s=_HOUR_S),
            "availability": lambda: availability(sightings(self.ledger)),
        }
        if name not in makers:
            raise ValueError(f"expected one of {', '.join(DATASETS)}, got {name!r}")
        return makers[name]()

    def sql(self, query: str) -> DataFrame:
        """The rows of a query over `events`, `ledger` and the datasets; SqlError if it has none."""
        from pyspark.errors import PySparkException  # noqa: PLC0415

        self.events.createOrReplaceTempView(EVENTS)
        self.ledger.createOrReplaceTempView(LEDGER)
        for name in DATASETS:
            if re.search(rf"\b{name}\b", query, re.IGNORECASE):
                self.dataset(name).createOrReplaceTempView(name)
        try:
            return self.spark.sql(_bracketed(query))
        except PySparkException as error:
            raise _of_spark(error) from None


@contextmanager
def query_spark(
    archive: str | Path, query: str, start: StartPipeline
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a query, in a Spark session of their own; SqlError.

    A signal ends it at once: nothing is written, and Spark's own processes end with this one.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from accord.pipeline.session import open_session  # noqa: PLC0415

    opened(archive)  # before Spark starts
    # It would print every mistake in a query once more, with Java's trace.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = open_session(start)
    try:
        frame = ArchiveTables(archive, spark).sql(query)
        rows: pa.Table = frame.toArrow()
        yield rows.to_reader()
    except PySparkException as error:
        raise _of_spark(error) from None
    finally:
        spark.stop()


def query_datafusion(archive: str | Path, query: str) -> pa.RecordBatchReader:
    """The rows of a query over `events` and `ledger`, without Spark; SqlError."""
    tables = opened(archive)
    engine = QueryBuilder()
    for name, table in ((_FILES, EVENTS), (LEDGER, LEDGER)):
        engine = engine.register(name, DeltaTable(tables.storage.uri_of(table)))
    engine.execute(f"CREATE VIEW {EVENTS} AS {_unified(tables.events.snapshot().columns)}")
    try:
        # Only a query can stand in brackets; but there, rows would lose their order.
        engine.execute(f"EXPLAIN {_bracketed(query)}")
        return pa.RecordBatchReader.from_stream(engine.execute(_stripped(query)))
    except Exception as error:
        raise _of_datafusion(str(error), query) from None


def opened(archive: str | Path) -> Archive:
    """The archive at this place; SqlError if there is none."""
    found = Archive(archive, ())
    if not all(table.exists() for table in found.tables):
        raise SqlError(f"there is no archive at {archive}")
    return found


def _stripped(query: str) -> str:
    text = query.strip().rstrip(";").rstrip()
    if not text:
        raise SqlError("expected a query, got nothing")
    return text


def _bracketed(query: str) -> str:
    """As a subquery, which begins in a line of its own."""
    return f"SELECT * FROM (\n{_stripped(query)}\n)"  # noqa: S608 (SQL is what is asked for)


def _of_spark(error: Exception) -> SqlError:
    text = str(error).strip()
    found = _SPARK_PLACE.search(text)
    problem = re.split(r"; line \d| SQLSTATE| \(line \d|\n", text, maxsplit=1)[0]
    problem = re.sub(r"^\[[A-Z_.0-9]+\] ", "", problem).strip()
    if found is None:
        return SqlError(problem)
    return SqlError(problem, max(1, int(found[1]) - 1), int(found[2]) + 1)


def _of_datafusion(text: str, query: str) -> SqlError:
    problem = re.sub(
        r"^(SQL error: ParserError\(\"|Schema error: |Error during planning: )", "", text
    )
    if found := _DATAFUSION_PLACE.search(text):
        problem = problem[: problem.index(" at Line")]
        return SqlError(problem, max(1, int(found[1]) - 1), int(found[2]))
    if (found := _TABLE.search(text)) and found[1] in DATASETS:
        problem = f"{found[1]} is a dataset of Spark: expected --engine spark"
    elif found:
        problem = f"there is no table {found[1]!r}: expected {EVENTS} or {LEDGER}"
    named = found or _FIELD.search(text)
    if named is None:
        return SqlError(problem)
    name = named[1].strip("\"'").rpartition(".")[2].strip("\"'")
    at = re.search(rf"\b{re.escape(name)}\b", query.strip(), re.IGNORECASE)
    if at is None:
        return SqlError(problem)
    before = query.strip()[: at.start()]
    return SqlError(problem, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _unified(columns: Columns) -> str:
    """A query for the events with a column for each declared attribute."""
    own = {column.name for column in columns}
    names = [name for name in arrow_events(columns).names if name not in own]
    parts = [_quoted(name) for name in names]
    parts += [
        f"coalesce({', '.join(_sources(each))}) AS {_quoted(attribute)}"
        for attribute, each in by_attribute(columns).items()
    ]
    return f"SELECT {', '.join(parts)} FROM {_FILES}"  # noqa: S608 (names are quoted)


def _sources(columns: Columns) -> list[str]:
    """Where a value of the attribute can be: columns of the last type, and the map."""
    last = columns[-1]
    name = last.attribute.replace("'", "''")
    found = []
    for kind in (last.kind, *(("integer",) if last.kind == "float" else ())):
        found += [_quoted(each.name) for each in columns if each.kind == kind]
        found.append(f"{ATTRIBUTES}['{name}']['{kind}']")
    return found


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
