"""How fast kept events get into the archive, beside Spark's own files with the same rows."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from subprocess import PIPE, Popen
from time import perf_counter, time
from typing import TYPE_CHECKING, Final

from accord.edges.pipeline.messages import Start
from accord.journal.disk import OsDisk
from accord.journal.log import Log
from accord.journal.reader import Reader
from benchmarks.archive_records import batch_of
from benchmarks.options import QUICK, Options, progress
from benchmarks.report import Table, keep, number, show, significant
from benchmarks.tree import cpu_s

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

ABOUT: Final = (
    "Events with two attributes, kept in a journal, go into the archive by the archive job as a "
    "node runs it: local[2], one process. Beside it, in the same session and in turns: Spark's own "
    "streaming Parquet source and file sink, which move the same rows, decoded already, with the "
    "same compression. Both begin with nothing, and stop when everything is there. CPU is that of "
    "all processes: Python, Java and Spark's workers. Medians. Lag is from when the journal has "
    "committed an event (its publisher is acknowledged then) until a reader of the archive sees it."
)
_OURS: Final = "accord archive"
_SPARK: Final = "Spark Parquet → Parquet"
_ROWS: Final = {100: 1_000_000, 1_000: 400_000}
_QUICK_ROWS: Final = {100: 100_000, 1_000: 50_000}
_COMMIT: Final = 1_000
_FILES: Final = 8  # of Spark's source
_COMPRESSION: Final = "lz4_raw"  # as the archive's own
_PATIENCE_S: Final = 500
_RATE_HZ: Final = 2_000
_LAG_S: Final = 30.0
_QUICK_LAG_S: Final = 8.0
_SETTLING_S: Final = 5.0
_WARM_UP: Final = 40_000


@dataclass
class Runs:
    """What each round of one contender took."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def add(self, action: Callable[[], None]) -> None:
        cpu, wall = cpu_s(), perf_counter()
        action()
        self.wall_s.append(perf_counter() - wall)
        self.cpu_s.append(cpu_s() - cpu)


class Bench:
    """One session, and a folder for all it reads and writes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._turn = 0

    def journal(self, size: int, rows: int) -> Path:
        folder = self.folder / f"journal-{size}-{rows}"
        log = Log(OsDisk(folder))
        for first in range(0, rows, _COMMIT):
            log.commit(batch_of(first, min(_COMMIT, rows - first), size), now_ms=1 + first)
        log.close()
        return folder

    def start(self, journal: Path) -> Start:
        """Of an archive that has nothing yet."""
        self._turn += 1
        place = self.folder / f"archive-{self._turn}"
        return Start(
            node="bench",
            journal=str(journal),
            archive=str(place),
            work=str(self.folder / "work"),
        )

    def archive(self, start: Start) -> None:
        end = Reader(start.journal).extent().next_offset
        with archiving(self.spark, start) as progress_of:
            progress_of.wait_for(end)

    def source(self, start: Start) -> tuple[Path, StructType]:
        """The rows that are in this archive, as files of about the same size."""
        from accord.pipeline.tables import events  # noqa: PLC0415 (needs Spark)

        rows = events(self.spark, start.archive)
        place = Path(start.archive).with_name(Path(start.archive).name + "-rows")
        rows.repartition(_FILES).write.option("compression", _COMPRESSION).parquet(str(place))
        return place, rows.schema

    def copy(self, source: Path, schema: StructType) -> None:
        self._turn += 1
        place = self.folder / f"copy-{self._turn}"
        stream = self.spark.readStream.schema(schema).parquet(str(source))
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(place))
            .option("compression", _COMPRESSION)
            .option("checkpointLocation", f"{place}-checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_PATIENCE_S)
        assert (place / "_spark_metadata").is_dir()
        shutil.rmtree(place)


class Progress:
    """How far an archive has come, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []
        self._news = threading.Condition()
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
def archiving(spark: SparkSession, start: Start) -> Iterator[Progress]:
    from accord.pipeline.archive_job import ArchiveJob  # noqa: PLC0415 (needs Spark)
    from accord.pipeline.manifest import Manifest  # noqa: PLC0415

    reached = Progress()
    job = ArchiveJob(spark, start, Manifest(start.archive), lambda done: reached.add(done.archived))
    reached.problem = lambda: job.problem
    job.start()
    try:
        yield reached
    finally:
        job.stop()


def run(options: Options) -> list[Table]:
    from accord.pipeline.session import open_session  # noqa: PLC0415 (needs Spark)

    with tempfile.TemporaryDirectory(prefix="accord-archive-") as folder:
        start = Start(node="bench", journal="", archive="", work=f"{folder}/work", spark="local[2]")
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
        progress(f"archive: {rows:,} events of {size} B")
        runs = _race(bench, size, rows, options.rounds)
        spark = runs[_SPARK]
        for name, measured in runs.items():
            wall_s, spent_s = median(measured.wall_s), median(measured.cpu_s)
            table.add(
                name,
                f"{size:,} B",
                number(rows),
                number(rows / wall_s),
                significant(1e6 * spent_s / rows),
                significant(median(spark.wall_s) / wall_s),
                significant(spent_s / median(spark.cpu_s)),
            )
    table.notes.append("A rate above 1 and a CPU below 1 are better than Spark's.")
    return table


def _race(bench: Bench, size: int, rows: int, rounds: int) -> dict[str, Runs]:
    warm = bench.journal(size, _WARM_UP)
    first = bench.start(warm)
    bench.archive(first)
    bench.copy(*bench.source(first))
    journal = bench.journal(size, rows)
    whole = bench.start(journal)
    bench.archive(whole)
    source, schema = bench.source(whole)
    runs = {_OURS: Runs(), _SPARK: Runs()}
    for _ in range(rounds):
        start = bench.start(journal)
        runs[_OURS].add(lambda start=start: bench.archive(start))  # type: ignore[misc]
        shutil.rmtree(start.archive)
        runs[_SPARK].add(lambda: bench.copy(source, schema))
    for place in (whole.archive, source, journal):
        shutil.rmtree(place)
    return runs


def _lag(bench: Bench, options: Options) -> Table:
    lasting_s = _QUICK_LAG_S if options.is_quick else _LAG_S
    progress(f"archive: lag at {_RATE_HZ:,} events/s for {lasting_s:.0f} s")
    start = bench.start(bench.folder / "growing")
    command = [sys.executable, "-m", "benchmarks.archive_records", start.journal, str(_RATE_HZ)]
    writer = Popen([*command, str(_SETTLING_S + lasting_s)], stdout=PIPE, text=True)
    with writer, archiving(bench.spark, start) as reached:
        assert writer.stdout is not None
        committed = [_mark(line) for line in writer.stdout]
        reached.wait_for(committed[-1][0])
    lags_ms = list(lags(committed, reached.seen, after_s=committed[0][1] + _SETTLING_S))
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
