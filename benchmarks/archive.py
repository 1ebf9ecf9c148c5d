"""How fast kept events get into the archive, beside Spark's own files with the same rows."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from subprocess import PIPE, Popen
from threading import Condition, Thread
from time import perf_counter, sleep, time
from typing import TYPE_CHECKING, Final

from accord.core.queries.messages import StartPipeline
from accord.journal.disk import OsDisk
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import COMMITTED, encode_committed
from benchmarks.archive_records import batch_of
from benchmarks.options import QUICK, Options, progress
from benchmarks.report import Table, keep, number, show, significant
from benchmarks.tree import cpu_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

ABOUT: Final = (
    "Events with two attributes, kept in a journal, go into the archive by the archive job as a "
    "node runs it: local[2], one process. Beside it, in the same session and in turns: Spark's own "
    "streaming Parquet source and file sink, which move the same rows, decoded already, with the "
    "same compression and the same trigger. Either query runs already, and is idle; measured is "
    "from when the rows appear, all at once, until readers of the archive (of the sink) see them "
    "all. CPU is that of all processes: Python, Java and Spark's workers. Medians. Lag is from "
    "when the journal has committed an event (its publisher is acknowledged then) until a reader "
    "of the archive sees it."
)
_OURS: Final = "accord archive"
_SPARK: Final = "Spark Parquet → Parquet"
_ROWS: Final = {100: 1_080_000, 1_000: 480_000}
_QUICK_ROWS: Final = {100: 280_000, 1_000: 180_000}
_COMMIT: Final = 1_000
_FILES: Final = 8  # of Spark's source
_COMPRESSION: Final = "lz4_raw"  # as the archive's own
_PATIENCE_S: Final = 500
_RATE_HZ: Final = 2_000
_LAG_S: Final = 30.0
_QUICK_LAG_S: Final = 8.0
_SETTLING_S: Final = 5.0
_FIRST_ROWS: Final = 80_000  # before what is measured: the query runs then, and is warm
_INTERVAL_MS: Final = 50
_USUAL_INTERVAL_MS: Final = 500
_PAUSE_S: Final = 1.0


@dataclass
class Runs:
    """What each round of one contender took."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @contextmanager
    def timed(self) -> Iterator[None]:
        cpu, wall = cpu_s(), perf_counter()
        yield
        self.wall_s.append(perf_counter() - wall)
        self.cpu_s.append(cpu_s() - cpu)


class Bench:
    """One session, and a folder for all it reads and writes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._turn = 0

    def journal(self, size: int, rows: int) -> Path:
        """Of which only the first records are told to be committed."""
        folder = self.folder / f"journal-{size}"
        log = SegmentLog(OsDisk(folder))
        for first in range(0, rows, _COMMIT):
            log.commit(batch_of(first, min(_COMMIT, rows - first), size), now_ms=1 + first)
        log.close()
        return folder

    def start(self, journal: Path, interval_ms: int) -> StartPipeline:
        """Of an archive that has nothing yet."""
        self._turn += 1
        return StartPipeline(
            node="bench",
            journal=str(journal),
            archive=str(self.folder / f"archive-{self._turn}"),
            work=str(self.folder / "work"),
            interval_ms=interval_ms,
        )

    def archive(self, journal: Path, rows: int, runs: Runs) -> StartPipeline:
        """From when the journal's mark moves on until the tables have it all."""
        start = self.start(journal, _INTERVAL_MS)
        _commit(journal, _FIRST_ROWS)
        with archiving(self.spark, start) as reached:
            reached.wait_for(_FIRST_ROWS)
            sleep(_PAUSE_S)
            with runs.timed():
                _commit(journal, rows)
                reached.wait_for(rows)
        return start

    def rows_of(self, start: StartPipeline, place: Path) -> StructType:
        """What is in this archive, as files of about the same size: those of the first rows too."""
        from accord.pipeline.delta_log import Archive  # noqa: PLC0415 (needs Spark)
        from accord.pipeline.spark_tables import events  # noqa: PLC0415

        archive = Archive(start.archive, [start.node])
        rows = events(self.spark, archive.storage, archive.events.snapshot())
        for name, part, files in (
            ("first", rows.where(f"offset < {_FIRST_ROWS}"), 4),
            ("others", rows.where(f"offset >= {_FIRST_ROWS}"), _FILES),
        ):
            written = part.repartition(files).write.option("compression", _COMPRESSION)
            written.parquet(str(place / name))
        return rows.schema

    def copy(self, rows: Path, schema: StructType, runs: Runs) -> None:
        """From when the files appear until the sink's own manifest has what they hold."""
        self._turn += 1
        source, sink = self.folder / f"source-{self._turn}", self.folder / f"sink-{self._turn}"
        shutil.copytree(rows / "others", self.folder / "next")
        shutil.copytree(rows / "first", source / "first")
        query = (
            self.spark.readStream.schema(schema)
            .parquet(f"{source}/*")
            .writeStream.format("parquet")
            .option("path", str(sink))
            .option("compression", _COMPRESSION)
            .option("checkpointLocation", f"{sink}-checkpoint")
            .trigger(processingTime=f"{_INTERVAL_MS} milliseconds")
            .start()
        )
        try:
            _wait_until((sink / "_spark_metadata" / "0").exists, query)
            sleep(_PAUSE_S)
            with runs.timed():
                (self.folder / "next").rename(source / "others")  # all of them at once
                _wait_until((sink / "_spark_metadata" / "1").exists, query)
        finally:
            query.stop()
        for place in (source, sink):
            shutil.rmtree(place)


def _commit(journal: Path, offset: int) -> None:
    """As the journal's writer does: in place, so that nobody finds it empty."""
    with (journal / COMMITTED).open("r+b") as mark:
        mark.write(encode_committed(offset))


def _wait_until(is_true: Callable[[], bool], query: StreamingQuery) -> None:
    end_s = perf_counter() + _PATIENCE_S
    while not is_true():
        assert query.isActive, query.exception()
        assert perf_counter() < end_s, "Spark does not get on"
        sleep(0.01)


class Progress:
    """How far an archive has come, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []
        self._news = Condition()
        self.problem: Callable[[], str] = lambda: ""

    def add(self, offset: int) -> None:
        with self._news:
            self.seen.append((offset, time()))
            self._news.notify_all()

    def wait_for(self, offset: int) -> None:
        end_s = perf_counter() + _PATIENCE_S
        with self._news:
            while not self.seen or self.seen[-1][0] < offset:
                assert not self.problem(), self.problem()
                assert perf_counter() < end_s, "the archive does not get on"
                self._news.wait(1.0)


@contextmanager
def archiving(spark: SparkSession, start: StartPipeline) -> Iterator[Progress]:
    from accord.pipeline.archive_job import ArchiveJob  # noqa: PLC0415 (needs Spark)
    from accord.pipeline.delta_log import Archive  # noqa: PLC0415

    reached = Progress()
    archive = Archive(start.archive, [start.node])
    job = ArchiveJob(spark, start, archive, lambda done: reached.add(done.archived[start.node]))
    reached.problem = lambda: job.problem
    job.start()
    try:
        yield reached
    finally:
        job.stop()


def run(options: Options) -> list[Table]:
    from accord.pipeline.session import open_session  # noqa: PLC0415 (needs Spark)

    with tempfile.TemporaryDirectory(prefix="accord-archive-") as folder:
        start = StartPipeline(
            node="bench", journal="", archive="", work=f"{folder}/work", spark="local[2]"
        )
        spark = open_session(start)
        try:
            bench = Bench(spark, Path(folder))
            return [_throughput(bench, options), _lag(bench, options)]
        finally:
            spark.stop()


def _throughput(bench: Bench, options: Options) -> Table:
    columns = ["", "payload", "rows", "rows/s", "CPU µs/row", "rate beside Spark's", "CPU"]
    table = Table("Into the archive", columns)
    for size, rows in (_QUICK_ROWS if options.is_quick else _ROWS).items():
        progress(f"archive: {rows - _FIRST_ROWS:,} events of {size} B")
        runs = _race(bench, size, rows, options.rounds)
        spark = runs[_SPARK]
        for name, measured in runs.items():
            wall_s, spent_s = median(measured.wall_s), median(measured.cpu_s)
            table.add(
                name,
                f"{size:,} B",
                number(rows - _FIRST_ROWS),
                number((rows - _FIRST_ROWS) / wall_s),
                significant(1e6 * spent_s / (rows - _FIRST_ROWS)),
                significant(median(spark.wall_s) / wall_s),
                significant(spent_s / median(spark.cpu_s)),
            )
    table.notes.append("A rate above 1 and a CPU below 1 are better than Spark's.")
    return table


def _race(bench: Bench, size: int, rows: int, rounds: int) -> dict[str, Runs]:
    journal, place = bench.journal(size, rows), bench.folder / f"rows-{size}"
    whole = bench.archive(journal, rows, Runs())
    schema = bench.rows_of(whole, place)
    bench.copy(place, schema, Runs())
    runs = {_OURS: Runs(), _SPARK: Runs()}
    for _ in range(rounds):
        start = bench.archive(journal, rows, runs[_OURS])
        shutil.rmtree(start.archive)
        bench.copy(place, schema, runs[_SPARK])
    for done in (Path(whole.archive), place, journal):
        shutil.rmtree(done)
    return runs


def _lag(bench: Bench, options: Options) -> Table:
    lasting_s = _QUICK_LAG_S if options.is_quick else _LAG_S
    progress(f"archive: lag at {_RATE_HZ:,} events/s for {lasting_s:.0f} s")
    start = bench.start(bench.folder / "growing", _USUAL_INTERVAL_MS)
    command = [sys.executable, "-m", "benchmarks.archive_records", start.journal, str(_RATE_HZ)]
    writer = Popen(command, stdin=PIPE, stdout=PIPE, text=True)
    with writer, archiving(bench.spark, start) as reached:
        assert writer.stdin is not None
        assert writer.stdout is not None
        committed: list[tuple[int, float]] = []
        listener = Thread(target=lambda: committed.extend(map(_mark, writer.stdout or ())))
        listener.start()
        reached.wait_for(1)
        sleep(_SETTLING_S)
        began_s = time()
        sleep(lasting_s)
        writer.stdin.close()
        listener.join()
        reached.wait_for(committed[-1][0])
    lags_ms = list(lags(committed, reached.seen, after_s=began_s))
    at = quantiles(lags_ms, n=100)
    table = Table(
        "Lag from acknowledged to visible", ["events/s", "events", "p50 ms", "p95 ms", "max ms"]
    )
    table.add(
        number(_RATE_HZ), number(len(lags_ms)), number(at[49]), number(at[94]), number(max(lags_ms))
    )
    return table


def _mark(line: str) -> tuple[int, float]:
    offset, at_s = line.split()
    return int(offset), float(at_s)


def lags(
    committed: list[tuple[int, float]], seen: list[tuple[int, float]], *, after_s: float
) -> Iterator[float]:
    """Of each event, in ms; marks say up to which offset, and when."""
    before = 0
    reached = iter(seen)
    offset, seen_s = next(reached)
    for end, committed_s in committed:
        while before < end:
            while offset <= before:
                offset, seen_s = next(reached)
            count = min(end, offset) - before
            if committed_s >= after_s:
                yield from [1000 * (seen_s - committed_s)] * count
            before += count


if __name__ == "__main__":
    is_quick = "--quick" in sys.argv
    tables = run(QUICK if is_quick else Options())
    for each in tables:
        show(each)
    progress(f"written to {keep('archive', ABOUT, tables, is_full=not is_quick).name}")
