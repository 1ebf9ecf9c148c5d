"""Questions to a large archive by both engines, beside DuckDB on the same files.

`python -m benchmarks.archive_queries` makes 5,000,000 events and asks; `--quick` 200,000;
`--data FOLDER` keeps them for the next time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Final

import msgspec
from msgspec.structs import replace
from pyspark.sql import SparkSession

from accord.core.mqtt.properties import Properties, encode_properties
from accord.core.queries.messages import EngineName, EventQuery, Page, PageQuery, StartPipeline
from accord.journal.disk import OsDisk
from accord.journal.events import KeptEvent
from accord.journal.reader import Reader
from accord.journal.segment_log import SegmentLog
from accord.pipeline import delta_log
from accord.pipeline.journal_sink import SliceJob, commit_batch, write_slice
from accord.pipeline.maintenance import Compaction, choose, compact
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.spark_engine import SparkEngine
from accord.pipeline.query.tail import Tail
from accord.pipeline.session import open_session
from accord.pipeline.tables import EVENTS, LAST_MS
from benchmarks.measure import WrongAnswerError
from benchmarks.options import Options, progress
from benchmarks.report import Table, keep, number, show, significant

ABOUT: Final = (
    "A day of events of 12 channels, with two declared attributes and one that is not, 100 bytes "
    "of payload each, archived and compacted; 2,000 more are in the journal only. A selective "
    "question asks for one channel, a fiftieth of the range of a declared attribute, and one hour, "
    "oldest first, up to 1,000 events; each time another. A scan asks for a five-hundredth of the "
    "range on all channels of the whole day; a computed condition is one that SQL says nothing of. "
    "Each question is answered by either engine, as with --engine. The floor is a Spark query over "
    "nothing: `range(1)` without its only row. DuckDB reads the same Parquet files, of the archive "
    "all of them, and not the tail. All in turns, each answer compared with DuckDB's. Embedded "
    "Spark, the session warm."
)
NODE: Final = "bench"
EVENTS_FULL: Final = 5_000_000
EVENTS_QUICK: Final = 200_000
_TAIL: Final = 2_000
_PIECE: Final = 100_000
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_START_MS: Final = 1_763_251_200_000  # 2025-11-16
_CHANNELS: Final = tuple(
    f"{group}/{name}" for group in ("uav", "sea", "air", "land") for name in ("a", "b", "c")
)
_ALTITUDES: Final = 10_000
_DECLARED: Final = {"altitude_m": "integer", "platform": "string"}
_WARM: Final = 20
_ROWS: Final = 1_000
FLOOR: Final = "Spark: nothing"
DATAFUSION: Final = "DataFusion"
SPARK: Final = "Spark"
DUCKDB: Final = "DuckDB"
_ENGINES: Final[dict[str, EngineName]] = {DATAFUSION: "datafusion", SPARK: "spark"}


@dataclass
class Archive:
    """Where it is, and how many events it has."""

    folder: Path
    events: int
    start_ms: int = _START_MS

    @property
    def journal(self) -> str:
        return str(self.folder / "journal")

    @property
    def path(self) -> str:
        return str(self.folder / "archive")

    def tables(self) -> delta_log.Archive:
        return delta_log.Archive(self.path, [NODE])

    def received_ms(self, at: int) -> int:
        return self.start_ms + at * _DAY_MS // self.events


class Times(list[float]):
    """Of one contender, in milliseconds."""

    @property
    def p50(self) -> float:
        return median(self)

    @property
    def p95(self) -> float:
        return quantiles(self, n=20)[-1]


@dataclass
class Kind:
    """A kind of question: how it is asked here and there."""

    name: str
    draw: Callable[[], tuple[EventQuery, str]]  # and the same for DuckDB, as conditions
    aim_ms: float | None = None  # of DataFusion
    every: int = 1  # of so many rounds in one
    times: dict[str, Times] = field(default_factory=dict)
    pages: list[Page] = field(default_factory=list)


def run(options: Options) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), EVENTS_QUICK if options.is_quick else EVENTS_FULL, 50)


def measure(folder: Path, events: int, rounds: int) -> list[Table]:
    archive = made(folder, events)
    with _asking(archive) as contest:
        kinds = _kinds(archive, Random(7))
        for turn in range(_WARM + rounds):
            if turn % 10 == 0:
                progress(f"round {turn - _WARM} of {rounds}")
            for kind in kinds:
                if turn % kind.every:
                    continue
                contest.turn(kind, is_kept=turn >= _WARM)
        return [_table(kinds, archive, len(contest.files))]


class Contest:
    """All who answer, in one session."""

    def __init__(self, archive: Archive, spark: SparkSession) -> None:
        import duckdb  # noqa: PLC0415  # an archive can be made without

        tables = archive.tables()
        engine = SparkEngine(spark, tables.storage)
        planner = Planner(DataFusionEngine(), lambda: engine)
        tail = Tail(archive.journal)
        self.files = [
            f"{archive.path}/events/{each.path}" for each in tables.events.snapshot().files
        ]
        self._queries = QueryEngine(tables, tail, planner, node=NODE, journal=archive.journal)
        self._spark = spark
        self._duckdb = duckdb.connect()

    def turn(self, kind: Kind, *, is_kept: bool) -> None:
        """Each once, with a question that nobody has asked before."""
        ask, conditions = kind.draw()
        pages: dict[str, Page] = {}
        rows: list[tuple[int]] = []

        def ours(name: str) -> None:
            forced = replace(ask, engine=_ENGINES[name])
            pages[name] = self._queries.page(PageQuery(id=1, ask=forced, rows=_ROWS))

        def theirs() -> None:
            nonlocal rows
            rows = self._duckdb.execute(_sql(conditions), [self.files]).fetchall()

        contenders: dict[str, Callable[[], object]] = {
            FLOOR: lambda: self._spark.range(0, 1, 1, 1).where("id < 0").toArrow(),
            DATAFUSION: lambda: ours(DATAFUSION),
            SPARK: lambda: ours(SPARK),
            DUCKDB: theirs,
        }
        for name, work in contenders.items():
            began = perf_counter()
            work()
            if is_kept:
                kind.times.setdefault(name, Times()).append(1_000 * (perf_counter() - began))
        for page in pages.values():
            archived = [event.offset for event in page.events if event.publisher == "archived"]
            if archived != [row[0] for row in rows][: len(archived)] or not page.events:
                raise WrongAnswerError(f"{ask}: {len(archived)} and {len(rows)} events")
        if is_kept:
            kind.pages.append(pages[DATAFUSION])


def _sql(conditions: str) -> str:
    return (
        'SELECT "offset", number, received, channel, publisher, qos, properties, payload '
        f'FROM read_parquet(?) WHERE {conditions} ORDER BY received, "offset" LIMIT {_ROWS}'
    )


def _kinds(archive: Archive, rng: Random) -> list[Kind]:
    def in_hour(since_ms: int) -> tuple[EventQuery, str]:
        channel, low = rng.choice(_CHANNELS), rng.randrange(_ALTITUDES)
        high = low + _ALTITUDES // 50
        until_ms = since_ms + _HOUR_MS
        ask = EventQuery(
            channel=channel,
            where=f"altitude_m >= {low} AND altitude_m < {high}",
            since_ms=since_ms,
            until_ms=until_ms,
        )
        return ask, (
            f"channel = '{channel}' AND altitude_m >= {low} AND altitude_m < {high} AND "
            f"received >= make_timestamptz({since_ms * 1000}) AND "
            f"received < make_timestamptz({until_ms * 1000})"
        )

    def by_id() -> tuple[EventQuery, str]:
        wanted = rng.randrange(archive.events) + 1
        return EventQuery(channel="#", number=wanted), f"number = {wanted}"

    def scan() -> tuple[EventQuery, str]:
        low = rng.randrange(_ALTITUDES)
        where = f"altitude_m >= {low} AND altitude_m < {low + _ALTITUDES // 500}"
        return EventQuery(channel="#", where=where), where

    def computed() -> tuple[EventQuery, str]:
        channel, wanted = rng.choice(_CHANNELS), rng.randrange(_ALTITUDES)
        where = f"altitude_m + 1 >= {wanted} AND altitude_m + 1 < {wanted + _ALTITUDES // 500}"
        return EventQuery(channel=channel, where=where), f"channel = '{channel}' AND {where}"

    last_ms = archive.received_ms(archive.events - 1)
    return [
        Kind("selective", lambda: in_hour(_START_MS + rng.randrange(_DAY_MS - 2 * _HOUR_MS)), 15),
        Kind("by event id", by_id, 15),
        Kind("selective, with fresh tail", lambda: in_hour(last_ms - _HOUR_MS // 2), 25),
        Kind("scan", scan, every=10),
        Kind("computed condition", computed, every=10),
    ]


def _table(kinds: list[Kind], archive: Archive, files: int) -> Table:
    table = Table(
        f"Questions to {archive.events:,} archived events, ms",
        [
            "question",
            "contender",
            "p50",
            "p95",
            "× DuckDB",
            "aim",
            "files",
            "of",
            "MB",
            "events",
        ],
    )
    for kind in kinds:
        theirs = kind.times[DUCKDB].p50
        for name, times in kind.times.items():
            found = [""] * 5
            if name == DATAFUSION:
                found = [
                    "" if kind.aim_ms is None else f"≤ {kind.aim_ms:.0f} ms",
                    number(median(page.files for page in kind.pages), 1),
                    number(files),
                    significant(median(page.bytes for page in kind.pages) / 1e6),
                    number(median(len(page.events) for page in kind.pages)),
                ]
            table.add(
                kind.name,
                name,
                significant(times.p50),
                significant(times.p95),
                significant(times.p50 / theirs),
                *found,
            )
    table.notes.append(
        "Files and MB are those opened, of all files; within them parts are skipped."
    )
    return table


# The archive.


def made(folder: Path, events: int, start_ms: int = _START_MS) -> Archive:
    """Events written to a journal and from there to an archive, piece by piece, then compacted."""
    archive = Archive(folder, events, start_ms)
    tables = archive.tables()
    log = SegmentLog(OsDisk(archive.journal))
    try:
        if tables.archived(NODE) < events:
            _archive(archive, tables, log)
        have = Reader(archive.journal).extent().next_offset
        if have == events:
            rng = Random(8)
            fresh = [_record(archive, rng, events + each, "fresh") for each in range(_TAIL)]
            log.commit(fresh, now_ms=_START_MS)
    finally:
        log.close()
    while chosen := choose(tables.events.snapshot(), LAST_MS):
        snapshot = tables.events.snapshot()
        job = Compaction(
            archive=tables.place, table=EVENTS, files=tuple(chosen[0]), columns=snapshot.columns
        )
        if (done := compact(job)) is None:
            break
        tables.events.replace(chosen[0][: done.count], [done.file])
    return archive


def _archive(archive: Archive, tables: delta_log.Archive, log: SegmentLog) -> None:
    rng = Random(6)
    began = perf_counter()
    declared = tables.events.columns(_DECLARED)
    for first in range(0, archive.events, _PIECE):
        end = min(archive.events, first + _PIECE)
        records = [_record(archive, rng, at, "archived") for at in range(first, end)]
        log.commit(records, now_ms=_START_MS)
        job = SliceJob(
            node=NODE,
            journal=archive.journal,
            first=first,
            next=end,
            archive=archive.path,
            columns=declared,
            declared=declared,
        )
        commit_batch([write_slice(job)], tables)
        log.retire(now_ms=_START_MS, before_offset=end)
        if end % (10 * _PIECE) == 0:
            progress(f"{end:,} events archived after {perf_counter() - began:.0f} s")


def _record(archive: Archive, rng: Random, at: int, publisher: str) -> bytes:
    user = (
        ("altitude_m", str(rng.randrange(_ALTITUDES))),
        ("platform", f"platform-{rng.randrange(40)}"),
        ("heading", str(rng.randrange(360))),
    )
    block = encode_properties(Properties(user=user))[1:]
    channel = rng.choice(_CHANNELS)
    received_ms = archive.received_ms(at)
    payload = rng.randbytes(50) * 2
    return msgspec.msgpack.encode(
        KeptEvent(received_ms, channel, publisher, 1, -1, block, payload, at + 1)
    )


@contextmanager
def _asking(archive: Archive) -> Iterator[Contest]:
    start = StartPipeline(
        node=NODE,
        journal=archive.journal,
        archive=archive.path,
        work=str(archive.folder / "work"),
        declared=_DECLARED,
    )
    spark = open_session(start)
    try:
        yield Contest(archive, spark)
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archive_queries")
    parser.add_argument("--quick", action="store_true", help="200,000 events")
    parser.add_argument("--data", type=Path, help="a folder to keep the events in")
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    events = EVENTS_QUICK if asked.quick else EVENTS_FULL
    if asked.data is None:
        with tempfile.TemporaryDirectory() as folder:
            tables = measure(Path(folder), events, asked.rounds)
    else:
        tables = measure(asked.data, events, asked.rounds)
    for table in tables:
        show(table)
    path = keep("archive_queries", ABOUT, tables, is_full=not asked.quick)
    progress(f"written to {path.name}")


if __name__ == "__main__":
    main()
