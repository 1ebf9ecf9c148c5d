"""What commits to a table of the archive take after 100,000 of them, as after half a day.

`python -m benchmarks.archive_commits [--quick]`
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time, time
from typing import Any, Final
from uuid import uuid4

import msgspec
from deltalake import DeltaTable, QueryBuilder

from accord.pipeline.delta_log import (
    CHECKPOINT_EVERY,
    LOG,
    LOG_KEPT_MIN,
    DeltaLog,
    JournalPart,
    TableSnapshot,
    WrittenFile,
    now_ms,
)
from accord.pipeline.maintenance import choose
from accord.pipeline.storage import Storage
from accord.pipeline.tables import EVENTS, PARTITION, TableFile, day_of
from benchmarks.options import QUICK, Options, progress
from benchmarks.report import Table, keep, number, show, significant

ABOUT: Final = (
    "A table gets a batch of 1,000 events every half second, and is compacted as the archive "
    f"compacts it. The log is kept for {LOG_KEPT_MIN} minutes, with a checkpoint every "
    f"{CHECKPOINT_EVERY} commits. Time is virtual: the log is written as delta-rs writes it, and "
    "dated back, so that at the end the log has what it would have. The last 1,000 appends, which "
    "are measured, are real, with their compactions and checkpoints, and synced to disk; only the "
    "files that they name don't exist. Open is from nothing to all statistics of all files."
)
_COMMITS: Final = 100_000
_QUICK_COMMITS: Final = 10_000
_EVERY_MS: Final = 500
_LOOK_EVERY: Final = 10  # commits between two looks for what is to be compacted
_SUMMED_UP: Final = 1_000  # virtual commits between two checkpoints
_MEASURED: Final = 1_000
_ROWS: Final = 1_000
_BYTES: Final = 30_000
_NODE: Final = "node"
_COUNTED: Final = ("offset", "number", "payload_bytes")


class Growth:
    """A table whose last virtual commit was just now."""

    def __init__(self, folder: Path, commits: int) -> None:
        self.took_s: list[float] = []
        self.cpu_s: list[float] = []
        self.compactions = 0
        self._folder = folder
        self._commits = commits
        self._log = folder / EVENTS / LOG
        self._table = DeltaLog(Storage(folder), EVENTS, [_NODE])
        self._table.create()
        self._began_ms = round(time() * 1000) - commits * _EVERY_MS
        # Entries go in their order: one that is younger would keep all after it.
        os.utime(self._log / f"{0:020}.json", (self._began_ms / 1000,) * 2)
        self._version = 0
        self._live: dict[str, TableFile] = {}

    def pretend(self) -> None:
        """Write the log of all but the commits that are measured."""
        for index in range(self._commits - _MEASURED):
            at_ms = self._began_ms + index * _EVERY_MS
            new = self._file(index * _ROWS, _ROWS, _BYTES, day_of(at_ms))
            transaction = {"txn": {"appId": _NODE, "version": (index + 1) * _ROWS}}
            self._write(at_ms, [new], [], [transaction])
            if index % _LOOK_EVERY == 0:
                for files in self._chosen(self._live.values(), at_ms):
                    self._write(at_ms, [self._merged(files)], files, [])
            if index % _SUMMED_UP == 0:
                progress(f"archive commits: {index:,} of {self._commits:,}")
                self._sum_up(at_ms)
        self._sum_up(at_ms)

    def commit(self) -> None:
        """Really."""
        for index in range(self._commits - _MEASURED, self._commits):
            first = index * _ROWS
            new = self._file(first, _ROWS, _BYTES, day_of(now_ms()))
            part = JournalPart(node=_NODE, first=first, end=first + _ROWS, files=[new])
            began_s, cpu_s = perf_counter(), process_time()
            self._table.append([part])
            self.took_s.append(perf_counter() - began_s)
            self.cpu_s.append(process_time() - cpu_s)
            if index % _LOOK_EVERY == 0:
                for files in self._chosen(self._table.snapshot().files, now_ms()):
                    self._table.replace(files, [self._merged(files)])

    def opened(self) -> tuple[float, int]:
        """How long it takes to know a table's files, and how many there are."""
        began_s = perf_counter()
        files = DeltaLog(Storage(self._folder), EVENTS, [_NODE]).snapshot().files
        return perf_counter() - began_s, len(files)

    def entries(self) -> int:
        return len(list(self._log.iterdir()))

    def _chosen(self, files: Iterable[TableFile], at_ms: int) -> list[list[TableFile]]:
        snapshot = TableSnapshot(
            version=0, files=tuple(files), columns=(), archived={}, lost={}, engine=QueryBuilder()
        )
        found = choose(snapshot, at_ms)
        self.compactions += len(found)
        return found

    def _merged(self, files: Sequence[TableFile]) -> WrittenFile:
        rows, size = sum(each.rows for each in files), sum(each.bytes for each in files)
        return self._file(files[0].first_offset, rows, size, files[0].day)

    def _file(self, first: int, rows: int, size: int, day: str) -> WrittenFile:
        low = dict.fromkeys(_COUNTED, first) | {"node": _NODE, "channel": "uav/imagery"}
        high = low | dict.fromkeys(_COUNTED, first + rows - 1)
        nulls = dict.fromkeys(low, 0)
        stats = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}
        return WrittenFile(
            table=EVENTS,
            path=f"day={day}/{_NODE}-{first:016d}-{uuid4().hex[:12]}.parquet",
            day=day,
            rows=rows,
            bytes=size,
            stats=msgspec.json.encode(stats).decode(),
        )

    def _write(
        self,
        at_ms: int,
        added: Sequence[WrittenFile],
        removed: Sequence[TableFile],
        more: Sequence[dict[str, Any]],
    ) -> None:
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": at_ms, "operation": "WRITE", "operationParameters": {}}}
        ]
        for new in added:
            add = {
                "path": new.path,
                "partitionValues": {PARTITION: new.day},
                "size": new.bytes,
                "modificationTime": at_ms,
                "dataChange": not removed,
                "stats": new.stats,
            }
            actions.append({"add": add})
            self._live[new.path] = TableFile(
                path=new.path,
                day=new.day,
                rows=new.rows,
                bytes=new.bytes,
                node=_NODE,
                first_offset=int(new.path.split("-")[-2]),
            )
        for old in removed:
            remove = {
                "path": old.path,
                "dataChange": False,
                "deletionTimestamp": at_ms,
                "extendedFileMetadata": True,
                "partitionValues": {PARTITION: old.day},
                "size": old.bytes,
            }
            actions.append({"remove": remove})
            del self._live[old.path]
        self._version += 1
        entry = self._log / f"{self._version:020}.json"
        entry.write_bytes(b"\n".join(map(msgspec.json.encode, [*actions, *more])))
        os.utime(entry, (at_ms / 1000,) * 2)

    def _sum_up(self, at_ms: int) -> None:
        table = DeltaTable(str(self._folder / EVENTS))
        table.create_checkpoint()
        (checkpoint,) = self._log.glob(f"{self._version:020}.checkpoint.parquet")
        os.utime(checkpoint, (at_ms / 1000,) * 2)
        table.cleanup_metadata()


def run(options: Options) -> list[Table]:
    commits = _QUICK_COMMITS if options.is_quick else _COMMITS
    with tempfile.TemporaryDirectory(prefix="accord-commits-") as folder:
        growth = Growth(Path(folder), commits)
        growth.pretend()
        growth.commit()
        at = quantiles(growth.took_s, n=100)
        opened = [growth.opened() for _ in range(5)]
        table = Table(
            "A table after many commits",
            [
                "appends",
                "compactions",
                "append CPU ms",
                "p50 ms",
                "p95 ms",
                "open ms",
                "live files",
                "log files",
            ],
        )
        table.add(
            number(commits),
            number(growth.compactions),
            significant(1000 * median(growth.cpu_s)),
            significant(1000 * at[49]),
            significant(1000 * at[94]),
            significant(1000 * median(took_s for took_s, _ in opened)),
            number(opened[0][1]),
            number(growth.entries()),
        )
        return [table]


if __name__ == "__main__":
    is_quick = "--quick" in sys.argv
    tables = run(QUICK if is_quick else Options())
    for each in tables:
        show(each)
    progress(f"written to {keep('archive_commits', ABOUT, tables, is_full=not is_quick).name}")
