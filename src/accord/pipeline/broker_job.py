"""One run of bulk brokering: events from a table or stream, matched, to files or line by line.

The input is what Spark reads (Parquet, JSON, CSV), a Delta table, or a node's journal, also over
HTTP. Matches are rows of the input with the name of the predicate that matches; an event that
several match is there once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.errors import AccordError, InputError
from accord.core.queries.messages import StartPipeline
from accord.journal.segments import SEGMENT
from accord.pipeline import register
from accord.pipeline.bulk.predicate_compiler import PredicateSet
from accord.pipeline.bulk.predicate_folder import PredicateFolder
from accord.pipeline.bulk_brokering import match
from accord.pipeline.journal_readers import is_remote
from accord.pipeline.session import is_connect, open_session
from accord.pipeline.spark_errors import summary

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

JOURNAL: Final = "journal"
DELTA: Final = "delta"
INPUTS: Final = ("parquet", "json", "csv", DELTA, JOURNAL)
OUTPUTS: Final = ("parquet", "json")
_ENDINGS: Final = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
_CSV: Final = {"header": "true", "inferSchema": "true"}
_POLL_S: Final = 1
_CHECKPOINT: Final = "_checkpoint"  # readers pass over names that begin so


class BrokerJobError(AccordError):
    """Spark failed; the problem is the cause that it names."""


class BrokerJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to match, and where matches go: to the folder `output`, or to `emit` as JSON lines.

    `options` are those of the reader. A stream goes on until it is interrupted or, with `is_once`,
    until all that is there has been read; `checkpoint` is where its progress is kept.
    """

    source: str
    form: str
    options: Mapping[str, str] = {}
    columns: tuple[str, ...] = ()
    output: str = ""
    is_stream: bool = False
    is_once: bool = False
    checkpoint: str = ""
    master: str = ""

    def check(self) -> None:
        """Raise InputError for what can be found before Spark starts."""
        if self.is_stream and self.form == DELTA:
            raise InputError("--stream", "expected parquet, json, csv or a journal, got delta")
        if not self.output:
            return
        self.output_form  # noqa: B018
        if not self.is_stream and "://" not in self.output and Path(self.output).exists():
            raise InputError("--output", f"expected a new folder, {self.output} exists")

    @property
    def output_form(self) -> str:
        form = _ENDINGS.get(Path(self.output).suffix.lower(), "")
        if form not in OUTPUTS:
            endings = " or ".join(f".{form}" for form in OUTPUTS)
            raise InputError("--output", f"expected a name ending in {endings}, got {self.output}")
        return form


class BrokerRun:
    """A run of a job, with `work` for Spark's files; `emit` gets JSON lines.

    `run` belongs on a thread of its own: a signal must not interrupt a call to Spark.
    """

    def __init__(
        self,
        job: BrokerJob,
        predicates: PredicateSet | PredicateFolder,
        work: Path,
        emit: Callable[[str], None],
    ) -> None:
        self._job = job
        self._predicates = predicates
        self._work = work
        self._emit = emit
        self._stopped = Event()
        self._spark: SparkSession | None = None

    def run(self) -> int | None:
        """Return the number of matches, None for that of a stream written to files."""
        job = self._job
        start = StartPipeline(
            node="broker", journal="", archive="", work=str(self._work), spark=job.master
        )
        spark = self._spark = open_session(start)
        try:
            if self._stopped.is_set():
                return None
            register(spark)
            events = _read(job, spark)
            matched = match(events, self._predicates, columns=list(job.columns) or None)
            if job.is_stream:
                return self._run_stream(matched)
            return _write(job, matched) if job.output else _emit_rows(matched, self._emit)
        except (PySparkException, Py4JError) as error:
            raise BrokerJobError(summary(error)) from error
        finally:
            spark.stop()

    def stop(self) -> None:
        """Stop from another thread: a stream after its batch, all else at once."""
        self._stopped.set()
        if self._spark is not None and not self._job.is_stream:
            self._spark.stop()

    def _run_stream(self, matched: DataFrame) -> int | None:
        job = self._job
        if not job.output and is_connect(matched.sparkSession):
            raise InputError("--output", "expected a folder: batches of Spark Connect stay there")
        count = 0

        def emit_batch(batch: DataFrame, _number: int) -> None:
            nonlocal count
            count += _emit_rows(batch, self._emit)

        writer: Any = matched.writeStream
        if job.output:
            writer = writer.format(job.output_form).option("path", _absolute(job.output))
        else:
            writer = writer.foreachBatch(emit_batch)
        checkpoint = job.checkpoint or f"{job.output or self._work}/{_CHECKPOINT}"
        writer = writer.option("checkpointLocation", _absolute(checkpoint))
        writer = writer.trigger(availableNow=True) if job.is_once else writer
        query: StreamingQuery = writer.start()
        try:
            while not self._stopped.is_set() and not query.awaitTermination(_POLL_S):
                pass
        finally:
            query.stop()
        return None if job.output else count


def _read(job: BrokerJob, spark: SparkSession) -> DataFrame:
    source = _absolute(job.source)
    if job.form == DELTA:
        return _read_delta(spark, source, job.options)
    name = "accord" if job.form == JOURNAL else job.form
    options = {**(_CSV if job.form == "csv" else {}), **job.options}
    reader = spark.read.format(name).options(**options)
    if not job.is_stream:
        return reader.load(source)
    stream = spark.readStream.format(name).options(**options)
    if job.form != JOURNAL:
        stream = stream.schema(reader.load(source).schema)
    return stream.load(source)


def _write(job: BrokerJob, matched: DataFrame) -> int:
    seen = Observation()
    counted = matched.observe(seen, F.count(F.lit(1)).alias("matches"))
    counted.write.format(job.output_form).save(_absolute(job.output))
    return int(seen.get["matches"])


def _emit_rows(matched: DataFrame, emit: Callable[[str], None]) -> int:
    """Pass each row to `emit` as JSON, without all of them being in memory; returns how many."""
    count = 0
    lines = matched.select(F.to_json(F.struct("*")).alias("line"))
    for row in lines.toLocalIterator(prefetchPartitions=True):
        emit(row.line)
        count += 1
    return count


def _absolute(place: str) -> str:
    """Executors have working directories of their own."""
    return place if "://" in place else str(Path(place).absolute())


def form_of(source: str) -> str:
    """The format of `source`, by its address, ending or contents; InputError if that is unclear."""
    if is_remote(source):
        return JOURNAL
    path = Path(source)
    if form := _ENDINGS.get(path.suffix.lower()):
        return form
    if "://" not in source:
        if not path.exists():
            raise InputError(source, "no such file or directory; check the path")
        if (path / "_delta_log").is_dir():
            return DELTA
        if any(path.glob(f"*{SEGMENT}")):
            return JOURNAL
        for ending, form in _ENDINGS.items():
            if next(path.rglob(f"*{ending}"), None) is not None:
                return form
    raise InputError("--format", f"expected one of {', '.join(INPUTS)} for {source}")


def _read_delta(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """The files of a Delta table's latest version, by delta-rs: Spark's jar is not needed."""
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 (not always installed)
        from deltalake.exceptions import DeltaError  # noqa: PLC0415
    except ImportError:
        problem = "delta needs the package deltalake: pip install deltalake"
        raise InputError("--format", problem) from None
    try:
        files = DeltaTable(path).file_uris()
    except DeltaError as error:
        raise InputError(path, f"expected a Delta table: {error}") from None
    if not files:
        raise InputError(path, "expected a table with rows")
    reader = spark.read.options(basePath=path, mergeSchema="true", **options)
    return reader.parquet(*files)
