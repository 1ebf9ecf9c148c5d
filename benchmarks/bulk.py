"""Bulk brokering beside a Spark SQL join that finds the same matches."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from accord.pipeline.bulk_brokering import PredicateFolder, PredicateSet, compile_table, match
from benchmarks.measure import Result, WrongAnswerError, time_of
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

_TOPICS: Final = 1_000
_SIZES: Final = (100_000, 1_000_000)
_QUICK_SIZES: Final = (10_000,)
_EVENTS: Final = 1_000_000
_QUICK_EVENTS: Final = 100_000
_FEWER: Final = 10  # a tenth of the events tells what every run costs, however many there are
_FILES: Final = 4
_ROUNDS: Final = 5
_AIMS: Final = {100_000: 1.3, 1_000_000: 5.0}
_KINDS_SIZE: Final = 10_000
_KINDS_AIM: Final = 150_000
_RANGE: Final = 1_000.0
_WIDTH: Final = 100.0
_MEASURED: Final = ("altitude_m", "speed", "heading")
_KIND_ROUNDS: Final = 3

ABOUT: Final = (
    "Events of six columns, in Parquet, matched with predicates of the form `topic = 't42' AND "
    "altitude_m BETWEEN 120.5 AND 220.5 AND speed >= 31.2 AND speed < 131.2`: "
    f"{_TOPICS:,} topics, and ranges that a tenth of all values is in, so that of the predicates "
    "on its topic an event matches one in a hundred. `accord.pipeline.bulk_brokering.match` beside "
    "the join that Spark SQL would do it with: on the topic, with the ranges as further "
    "conditions, predicates cached as columns in memory, broadcast or shuffled, whichever is "
    "faster. In one "
    "session (`local[2]`), in turns, medians by the wall clock; the sum over all pairs of event "
    "and predicate found is the same for both, in every run."
)

Answer = tuple[int, int]
Find = Callable[[DataFrame], Answer]


@dataclass(frozen=True)
class Timed:
    """Seconds for all events, and for a tenth of them."""

    all_s: float
    tenth_s: float
    events: int

    @property
    def events_per_s(self) -> float:
        return self.events / self.all_s

    @property
    def fixed_s(self) -> float:
        """What a run takes before the first event: jobs to start, predicates to distribute."""
        return max(0.0, (_FEWER * self.tenth_s - self.all_s) / (_FEWER - 1))

    @property
    def net_per_s(self) -> float:
        return self.events / (self.all_s - self.fixed_s)


def run(options: Options) -> list[Table]:
    speed = Table(
        "Speed",
        ["predicates", "events", "matches", "how", "events/s", "fixed s", "net events/s",
         "times the join", "net", "aim"],
    )  # fmt: skip
    build = Table(
        "Building",
        ["predicates", "compile s", "µs each", "publish s", "bytes each", "first batch s",
         "worker MB"],
    )  # fmt: skip
    events = _QUICK_EVENTS if options.is_quick else _EVENTS
    sizes = _QUICK_SIZES if options.is_quick else _SIZES
    with _session() as spark, tempfile.TemporaryDirectory(prefix="accord-bulk-") as folder:
        _write_events(Path(folder), events)
        for size in sizes:
            progress(f"bulk: {events:,} events, {size:,} predicates")
            rounds = 1 if options.is_quick else _ROUNDS
            _Cell(spark, Path(folder), events, size).measure(speed, build, rounds)
        kinds = Table(
            "Ranges and alternatives",
            ["predicates", "how many", "matches", "events/s", "index", "times", "aim"],
        )
        rows = spark.read.parquet(f"{folder}/events")
        for name, wheres in _kinds(sizes[0] // 10 if options.is_quick else _KINDS_SIZE).items():
            progress(f"bulk: {events:,} events, {name}")
            _measure_kind(rows, events, name, wheres, kinds)
    kinds.notes = [
        "index: events/s with the same predicates in a node's index, event by event.",
    ]
    speed.notes = [
        "matches: per event; fixed: of a run however many events there are, found from a tenth.",
        "For the join that is mostly to build its table, each time.",
        "net: without that; the aim is for the net ratio, which favours the join.",
    ]
    build.notes = [
        "compile: texts to columns, on the driver, once; publish: to a folder that workers map.",
        "first batch: a worker's first look; worker: its memory, shared pages counted in parts.",
    ]
    return [speed, kinds, build]


class _Cell:
    def __init__(self, spark: SparkSession, folder: Path, events: int, size: int) -> None:
        self._spark = spark
        self._folder = folder
        self._events = events
        self._size = size
        self._table = _predicates(size)

    def measure(self, speed: Table, build: Table, rounds: int) -> None:
        predicates, folder = self._build(build)
        joins = self._joins()
        bulk = partial(self._bulk, folder)
        first_s, answer = _timed(partial(bulk, self._frame()))
        build.rows[-1][-2:] = [significant(first_s), significant(_worker_mb())]
        name = self._faster(joins, answer)
        contenders: dict[str, Find] = {"accord": bulk, f"join, {name}": joins[name]}
        spans = self._alternate(contenders, answer, rounds)
        ours, theirs = spans["accord"], spans[f"join, {name}"]
        aim = _AIMS.get(self._size)
        for how, timed in spans.items():
            ratio, net = (
                timed.events_per_s / theirs.events_per_s,
                timed.net_per_s / theirs.net_per_s,
            )
            verdict = "" if aim is None or timed is not ours else _verdict(aim, net)
            speed.add(
                number(self._size), number(self._events), significant(answer[0] / self._events),
                how, number(timed.events_per_s), significant(timed.fixed_s),
                number(timed.net_per_s), significant(ratio), significant(net), verdict,
            )  # fmt: skip
        assert len(predicates) == self._size
        self._spark.catalog.clearCache()

    def _build(self, build: Table) -> tuple[PredicateSet, PredicateFolder]:
        compile_s, predicates = _timed(lambda: compile_table(self._table))
        folder = PredicateFolder(self._folder / f"predicates-{self._size}")
        publish_s = time_of(lambda: folder.publish(predicates)).wall_s
        stored = sum(path.stat().st_size for path in folder.path.iterdir())
        build.add(
            number(self._size), significant(compile_s), significant(compile_s * 1e6 / self._size),
            significant(publish_s), number(stored / self._size), "", "",
        )  # fmt: skip
        return predicates, folder

    def _frame(self, share: int = 1) -> DataFrame:
        events = self._spark.read.parquet(str(self._folder / "events"))
        return events.where(F.col("number") < self._events // share) if share > 1 else events

    def _bulk(self, folder: PredicateFolder, events: DataFrame) -> Answer:
        return _answer(match(events, folder, columns=["number"]))

    def _joins(self) -> dict[str, Find]:
        path = self._folder / f"clauses-{self._size}.parquet"
        pq.write_table(self._table.drop_columns(["where", "channel", "xpath", "importance"]), path)
        clauses = self._spark.read.parquet(str(path)).withColumnRenamed("key", "predicate").cache()
        clauses.count()
        return {
            "broadcast": partial(_join, clauses.hint("broadcast")),
            "shuffled": partial(_join, clauses.hint("shuffle_hash")),
        }

    def _faster(self, joins: Mapping[str, Find], answer: Answer) -> str:
        took = {}
        for name, join in joins.items():
            join(self._frame(_FEWER))
            took[name], found = _timed(partial(join, self._frame()))
            _check(name, found, answer)
            progress(f"bulk: join, {name}: {took[name]:.1f} s")
        return min(took, key=took.__getitem__)

    def _alternate(
        self, contenders: Mapping[str, Find], answer: Answer, rounds: int
    ) -> dict[str, Timed]:
        spans: dict[tuple[str, int], list[float]] = {}
        for _ in range(rounds):
            for share in (1, _FEWER):
                for name, find in contenders.items():
                    took_s, found = _timed(partial(find, self._frame(share)))
                    if share == 1:
                        _check(name, found, answer)
                    spans.setdefault((name, share), []).append(took_s)
        return {
            name: Timed(median(spans[name, 1]), median(spans[name, _FEWER]), self._events)
            for name in contenders
        }


def _measure_kind(rows: DataFrame, events: int, name: str, wheres: list[str], table: Table) -> None:
    """A row for clause tables beside the index; both have to find the same."""
    count = len(wheres)

    def compiled(suffix: str) -> PredicateSet:
        columns = {"key": [f"s-{place}" for place in range(count)], "channel": ["uav/#"] * count}
        texts = [f"({where}){suffix}" for where in wheres]
        return compile_table(
            pa.table({**columns, "where": texts, "xpath": [""] * count, "importance": [0] * count})
        )

    # Nothing has such an attribute, and only the index can tell.
    indexed, predicates = compiled(" AND unknown IS NULL"), compiled("")
    index_s, answer = _timed(lambda: _answer(match(rows, indexed, columns=["number"])))
    spans = []
    for _ in range(_KIND_ROUNDS):
        took_s, found = _timed(lambda: _answer(match(rows, predicates, columns=["number"])))
        _check(name, found, answer)
        spans.append(took_s)
    rate = events / median(spans)
    verdict = f"≥ {number(_KINDS_AIM)}: {'met' if rate >= _KINDS_AIM else 'missed'}"
    table.add(
        name, number(count), significant(answer[0] / events), number(rate),
        number(events / index_s), significant(rate * index_s / events),
        verdict if count == _KINDS_SIZE else "",
    )  # fmt: skip


def _kinds(count: int) -> dict[str, list[str]]:
    """Predicates that no equality divides, or in alternatives."""
    random = np.random.default_rng(3)

    def ranges(name: str, width: float) -> list[str]:
        lows = np.round(random.random(count) * (_RANGE - width), 2).tolist()
        return [f"{name} BETWEEN {low} AND {round(low + width, 2)}" for low in lows]

    def all_of(*tests: list[str]) -> list[str]:
        return [" AND ".join(each) for each in zip(*tests, strict=True)]

    def either(*tests: list[str]) -> list[str]:
        return [" OR ".join(each) for each in zip(*tests, strict=True)]

    topics = [f"topic = 't{topic}'" for topic in random.integers(0, _TOPICS, count).tolist()]
    return {
        "two ranges, of 1 %": all_of(ranges("altitude_m", 10), ranges("speed", 10)),
        "three ranges, of 10 %": all_of(*(ranges(each, 100) for each in _MEASURED)),
        "a topic and a range, or a range": either(
            all_of(topics, ranges("altitude_m", 100)), ranges("speed", 0.1)
        ),
        "two ranges, or a range": either(
            all_of(ranges("altitude_m", 10), ranges("speed", 10)), ranges("heading", 0.1)
        ),
    }


def _join(clauses: DataFrame, events: DataFrame) -> Answer:
    on = (
        (events["topic"] == clauses["topic"])
        & (events["altitude_m"] >= clauses["low"])
        & (events["altitude_m"] <= clauses["high"])
        & (events["speed"] >= clauses["slow"])
        & (events["speed"] < clauses["fast"])
    )
    return _answer(events.join(clauses, on).select("number", "predicate"))


def _answer(matched: DataFrame) -> Answer:
    """How many pairs, and a sum over all of them that tells one set of pairs from another."""
    pair = F.xxhash64("number", "predicate").cast("decimal(38, 0)")
    row = matched.agg(F.count("*"), F.sum(pair)).first()
    assert row is not None
    return int(row[0]), int(row[1] or 0)


def _check(name: str, found: Answer, expected: Answer) -> None:
    if found != expected:
        raise WrongAnswerError(f"{name} found {found[0]:,} pairs, expected {expected[0]:,}")


def _verdict(aim: float, ratio: float) -> str:
    return f"≥ {aim:g} ×: {'met' if ratio >= aim else 'missed'}"


def _timed(action: Callable[[], Result]) -> tuple[float, Result]:
    began_s = perf_counter()
    result = action()
    return perf_counter() - began_s, result


@contextmanager
def _session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("accord-bulk")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def _write_events(folder: Path, count: int) -> None:
    random = np.random.default_rng(1)
    target = folder / "events"
    target.mkdir()
    topics = np.array([f"t{topic}" for topic in range(_TOPICS)])
    size = count // _FILES
    for place in range(_FILES):
        table = pa.table(
            {
                "number": np.arange(place, count, _FILES),
                "channel": pa.repeat("uav/track", size),
                "topic": topics[random.integers(0, _TOPICS, size)],
                "altitude_m": random.random(size) * _RANGE,
                "speed": random.random(size) * _RANGE,
                "heading": random.random(size) * _RANGE,
            }
        )
        pq.write_table(table, target / f"{place}.parquet")


def _predicates(count: int) -> pa.Table:
    """As texts for us, and as columns for the join."""
    random = np.random.default_rng(2)
    topics = [f"t{topic}" for topic in random.integers(0, _TOPICS, count).tolist()]
    low, slow = (np.round(random.random(count) * (_RANGE - _WIDTH), 2) for _ in range(2))
    high, fast = np.round(low + _WIDTH, 2), np.round(slow + _WIDTH, 2)
    wheres = [
        f"topic = '{topic}' AND altitude_m BETWEEN {a} AND {b} AND speed >= {c} AND speed < {d}"
        for topic, a, b, c, d in zip(
            topics, low.tolist(), high.tolist(), slow.tolist(), fast.tolist(), strict=True
        )
    ]
    return pa.table(
        {
            "key": [f"subscription-{place}" for place in range(count)],
            "channel": pa.repeat("uav/#", count),
            "where": wheres,
            "xpath": pa.repeat("", count),
            "importance": pa.repeat(0, count),
            "topic": topics,
            "low": low,
            "high": high,
            "slow": slow,
            "fast": fast,
        }
    )


def _worker_mb() -> float | None:
    """Memory of the largest of our Python workers, shared pages divided among their users."""
    found: list[float] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" not in (process / "cmdline").read_bytes() or not _is_ours(process):
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended
        found += [int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")]
    return max(found, default=None)


def _is_ours(process: Path) -> bool:
    """Whether we started it, or what started it."""
    number = int(process.name)
    while number > 1 and number != os.getpid():
        number = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    return number == os.getpid()
