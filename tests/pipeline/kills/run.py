"""A driver that archives a growing journal and is killed again and again; what the archive has.

python -m tests.pipeline.kills.run KILLS
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.pipeline.kills.driver import BETWEEN, COMPACTING, VACUUMING
from tests.pipeline.kills.processes import PATIENCE_S, Told, wait_for_end

from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.pipeline.decode.rows import decode_batch, event_columns, ledger_columns
from accord.pipeline.delta_log import KEPT_H, Archive, DeltaLog
from accord.pipeline.maintenance import conform
from accord.pipeline.parquet_files import renamed
from accord.pipeline.tables import (
    EVENTS,
    LEDGER,
    PARTITION,
    arrow_events,
    arrow_ledger,
    columns_for,
)

NODE: Final = "denver"
DECLARED: Final = {"altitude_m": "integer"}
PYTHON: Final = "python"  # whom a kill hits
JAVA: Final = "Java"
STARTING: Final = "python while starting"
WRITING: Final = "python after files were written"
HITS: Final = (BETWEEN, JAVA, COMPACTING, VACUUMING, WRITING, PYTHON, STARTING)
SELF: Final = (BETWEEN, COMPACTING, VACUUMING)  # moments at which it kills itself
_LOOK_S: Final = 0.002


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how long a driver that has begun to archive lives at most."""

    kills: int = 20
    seed: int = 1
    life_s: float = 2.0
    rate_hz: int = 2_000


class Outcome(msgspec.Struct, kw_only=True):
    kills: dict[str, int]
    starts: int = 0
    slowest_start_s: float = 0.0
    records: int = 0
    events: int = 0
    ledger_rows: int = 0
    files: int = 0
    orphans: int = 0
    lost: int = 0
    repeated: int = 0
    other: int = 0
    java_left: int = 0
    problems: list[str] = []

    def failures(self) -> list[str]:
        found = [
            (self.lost, "rows of the journal are not in the archive"),
            (self.repeated, "rows are in the archive more than once"),
            (self.other, "rows of the archive are not those of the journal"),
            (self.java_left, "processes of Java lived on"),
        ]
        return [f"{count} {what}" for count, what in found if count]


class Killing:
    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.journal, self.archive = folder / "journal", folder / "archive"
        self.work, self.log = folder / "work", folder / "output.log"
        self.outcome = Outcome(kills=dict.fromkeys(HITS, 0))
        self._say = say
        self._random = Random(plan.seed)  # noqa: S311
        self._javas: list[int] = []

    def run(self) -> Outcome:
        arguments = (str(self.journal), str(self.plan.rate_hz))
        writer = Told("writer.py", *arguments, log=self.log)
        try:
            writer.wait_until(lambda: writer.offset > 0, "the first commit")
            for number in range(self.plan.kills):
                hit = HITS[number % len(HITS)]
                self._kill_one(hit)
                self.outcome.kills[hit] += 1
                self._say(f"kill {number + 1}: {hit}; journal at {writer.offset}")
            self._finish(writer)
        finally:
            writer.close()
        self.outcome.java_left = sum(not wait_for_end(java) for java in self._javas)
        compare(self.journal, self.archive, self.outcome)
        return self.outcome

    def _driver(self, *moment: str) -> Told:
        places = (str(self.journal), str(self.archive), str(self.work))
        self.outcome.starts += 1
        self._age_files()
        return Told("driver.py", NODE, *places, *moment, log=self.log)

    def _age_files(self) -> None:
        """Nobody is about to commit them any more, so they may be deleted at once."""
        then_s = time.time() - (KEPT_H + 1) * 3600
        for path in self.archive.glob("*/*/*.parquet"):
            with suppress(FileNotFoundError):
                os.utime(path, (then_s, then_s))

    def _begin(self) -> Told:
        """A driver that has archived something since it was started."""
        began_s = time.monotonic()
        driver = self._driver()
        try:
            driver.wait_until(lambda: driver.offset > 0, "the first batch")
        except BaseException:
            driver.close()
            raise
        took_s = time.monotonic() - began_s
        self.outcome.slowest_start_s = max(self.outcome.slowest_start_s, took_s)
        self._note(driver)
        return driver

    def _note(self, driver: Told) -> None:
        if driver.java is not None:
            self._javas.append(driver.java)

    def _kill_one(self, hit: str) -> None:
        if hit == STARTING:
            driver = self._driver()
            time.sleep(self._random.uniform(0, 8.0))
            self._note(driver)
            driver.kill()
            return
        if hit in SELF:
            self._await_death(self._driver(hit))
            return
        driver = self._begin()
        try:
            time.sleep(self._random.uniform(0, self.plan.life_s))
            if hit == WRITING:
                self._wait_for_files(driver)
            if hit == JAVA:
                assert driver.java is not None
                os.kill(driver.java, signal.SIGKILL)
                # The other half must notice, and end so that somebody starts both again.
                assert driver.process.wait(60.0) == 3, driver.process.returncode
        finally:
            self.outcome.problems += driver.problems
            driver.kill()

    def _await_death(self, driver: Told) -> None:
        try:
            assert driver.process.wait(PATIENCE_S) == -signal.SIGKILL, driver.process.returncode
        finally:
            self.outcome.problems += driver.problems
            driver.close()
            self._note(driver)

    def _wait_for_files(self, driver: Told) -> None:
        """Until there are files that the tables may not have yet."""
        events = self.archive / "events"
        before = set(events.rglob("*"))
        while set(events.rglob("*")) == before:
            assert driver.process.poll() is None, "ended by itself"
            time.sleep(_LOOK_S)

    def _finish(self, writer: Told) -> None:
        driver = self._begin()
        try:
            self._say("alive again: archiving what is left")
            assert writer.end() == 0
            end = Reader(self.journal).extent().next_offset
            driver.wait_until(lambda: driver.offset >= end, f"all {end} records")
            assert driver.end() == 0
        finally:
            self.outcome.problems += driver.problems
            driver.close()


def compare(
    journal: Path,
    archive: Path,
    outcome: Outcome,
    node: str = NODE,
    declared: Mapping[str, str] = DECLARED,
    *,
    has_ledger_end: bool = True,
) -> None:
    """Row by row, with all that is in them.

    With `has_ledger_end` false the ledger counts as far as it is archived: a node that stops still
    says what became of the last events.
    """
    wanted, outcome.records = _journal_tables(journal, node, declared)
    if not has_ledger_end:
        reached = Archive(archive, [node]).ledger.archived(node)
        wanted[LEDGER] = wanted[LEDGER].filter(pc.field("offset") < reached)
    found, files = _archive_tables(archive, node)
    outcome.files = len(files)
    outcome.orphans = sum(
        str(path.relative_to(archive)) not in files for path in archive.rglob("*.parquet")
    )
    outcome.events, outcome.ledger_rows = wanted[EVENTS].num_rows, wanted[LEDGER].num_rows
    for table in (EVENTS, LEDGER):
        if not wanted[table].equals(found[table]):
            _tell_apart(_rows(wanted[table]), _rows(found[table]), outcome)


def _tell_apart(wanted: Counter[str], found: Counter[str], outcome: Outcome) -> None:
    outcome.lost += sum((wanted - found).values())
    extra = found - wanted
    outcome.repeated += sum(count for row, count in extra.items() if row in wanted)
    outcome.other += sum(count for row, count in extra.items() if row not in wanted)
    if wanted == found:  # which can't be, as they are sorted
        outcome.other += 1


def _rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def _journal_tables(
    journal: Path, node: str, declared: Mapping[str, str]
) -> tuple[dict[str, pa.Table], int]:
    events: list[pa.RecordBatch] = []
    ledger: list[pa.RecordBatch] = []
    columns = columns_for(declared, ())
    records = 0
    for batch in Reader(journal).read(0):
        assert isinstance(batch, Batch)
        records += batch.count
        decoded = decode_batch(batch)
        assert not decoded.unread
        events.append(event_columns(decoded.events, decoded.event_offsets, node, declared))
        ledger.append(ledger_columns(decoded.ledger, decoded.ledger_offsets, node))
    return {
        EVENTS: _sorted(renamed(pa.Table.from_batches(events, arrow_events(declared)), columns)),
        LEDGER: _sorted(pa.Table.from_batches(ledger, arrow_ledger())),
    }, records


def _archive_tables(place: Path, node: str) -> tuple[dict[str, pa.Table], set[str]]:
    archive = Archive(place, [node])
    found = {table.name: _rows_of(place, table) for table in archive.tables}
    return {name: rows for name, (rows, _) in found.items()}, {
        path for _, paths in found.values() for path in paths
    }


def _rows_of(place: Path, table: DeltaLog) -> tuple[pa.Table, list[str]]:
    snapshot = table.snapshot()
    whole = arrow_events(snapshot.columns) if table.name == EVENTS else arrow_ledger()
    schema = whole.remove(whole.get_field_index(PARTITION))
    parts = [whole.empty_table()]
    paths = [f"{table.name}/{file.path}" for file in snapshot.files]
    for path, file in zip(paths, snapshot.files, strict=True):
        with pq.ParquetFile(place / path) as source:
            rows = source.read()
        assert rows.num_rows == file.rows
        day = pa.scalar(date.fromisoformat(file.day), pa.date32())
        rows = conform(rows, schema).append_column(PARTITION, pa.repeat(day, len(rows)))
        parts.append(rows.select(whole.names).cast(whole))
    rows = _sorted(pa.concat_tables(parts))
    counted = snapshot.engine.execute(f"SELECT count(*) AS n FROM {table.name}")  # noqa: S608
    assert pa.table(counted.read_all())["n"].to_pylist() == [len(rows)]
    return rows, paths


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([("offset", "ascending"), ("number", "ascending")])


def run_kills(plan: Plan, folder: Path, say: Callable[[str], None]) -> Outcome:
    return Killing(plan, folder, say).run()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="accord-kills-") as folder:
        found = run_kills(
            Plan(kills=int(sys.argv[1])), Path(folder), lambda line: print(line, flush=True)
        )
        print(found, found.failures())
        sys.exit(bool(found.failures()))
