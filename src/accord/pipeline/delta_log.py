"""The archive's tables as Delta tables: what is part of them, and how far each journal has got.

Delta Lake's log has a numbered entry for each change, which exists whole or not at all, because the
number can be taken once: on a file system by `link`, on an object store by a conditional put. So
changes of any number of writers are totally ordered, and no lock is needed.

Each table records for every node the offset up to which its journal is in the table, as an
application transaction: Delta's own means for writing exactly once. A batch states its range of
offsets. It is committed only as the version after one in which the table ends where the batch
begins; if another commit takes that number, the batch is looked at again (`_change`). The two
tables are committed one after the other, so a crash between them leaves one ahead: each resumes by
itself, and the journal is kept for the one behind (`Archive.archived`).

A log entry in a directory is synced before anybody is told of it, and a checkpoint before entries
are deleted because of it. One that a power cut has left incomplete was therefore never relied on:
it is set aside, and the journal still has its records.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    QueryBuilder,
    Schema,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from accord.core.model.errors import AccordError
from accord.pipeline.durable_files import sync_directory, sync_file
from accord.pipeline.file_statistics import files_of
from accord.pipeline.storage import Storage
from accord.pipeline.tables import (
    EVENTS,
    LEDGER,
    PARTITION,
    Columns,
    TableFile,
    arrow_events,
    arrow_ledger,
    columns_for,
    columns_of_schema,
    field_of,
)

CHECKPOINT_EVERY: Final = 200  # commits
KEPT_H: Final = 6  # how long removed files stay
# How long entries of the log stay that a checkpoint stands for. Commits list the log: each takes
# about 12 ms of CPU with 600 entries, 23 with 3,400, 79 with 22,000. This is 3,600 at two a second.
LOG_KEPT_MIN: Final = 30
CONFIGURATION: Final = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.logRetentionDuration": f"interval {LOG_KEPT_MIN} minutes",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_H} hours",
    "delta.enableExpiredLogCleanup": "true",
}
_ENGINE: Final = {
    # Rows of all columns that are in memory at the same time, in as many threads.
    "datafusion.execution.batch_size": "1024",
    "datafusion.execution.target_partitions": "4",
    # Decodes large columns only where the condition is true.
    "datafusion.execution.parquet.pushdown_filters": "true",
}
_ENTRY: Final = re.compile(r"[0-9]{20}\.json")
_ATTEMPTS: Final = 50
LOG: Final = "_delta_log"
_CHECKPOINTS: Final = "[0-9]*.checkpoint.parquet"
_LAST: Final = "_last_checkpoint"
_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
CREATING: Final = 2  # actions that make a table: the protocol, and what it is
_ACTIONS: Final = "actions"  # in the information of a commit: how many follow
_log: Final = logging.getLogger(__name__)


class DeltaLogError(AccordError):
    """A table can't be read, or refuses a change: `problem` and `place` give the reason."""

    def __init__(self, problem: str, *, place: str) -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"table {place}: {problem}")


class WrittenFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that has been written, to be made part of a table; `stats` is Delta's JSON."""

    table: str
    path: str  # relative to the table
    day: str
    rows: int
    bytes: int
    stats: str


class JournalPart(msgspec.Struct, frozen=True, kw_only=True):
    """A batch's part of one node: records from `first` up to `end` of its journal.

    `lost` is how many of them the journal no longer had.
    """

    node: str
    first: int
    end: int
    files: Sequence[WrittenFile]
    lost: int = 0


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A table at one time; `engine` reads just that version.

    `archived` is, by node, the first offset of its journal that is not in the table; `lost` counts
    the records before it that the journal no longer had.
    """

    version: int
    files: tuple[TableFile, ...]
    columns: Columns
    archived: dict[str, int]
    lost: dict[str, int]
    engine: QueryBuilder


class DeltaLog:
    """One table of the archive, made on first use; thread-safe."""

    def __init__(
        self, storage: Storage, name: str, nodes: Sequence[str], *, version: int | None = None
    ) -> None:
        self.name = name
        self._storage = storage
        self._nodes = nodes
        self._uri = storage.uri_of(name)
        self._version = version  # None: the newest
        self._mutex = threading.RLock()
        self._table: DeltaTable | None = None
        self._snapshot: TableSnapshot | None = None
        self._files: dict[str, TableFile] = {}

    @property
    def place(self) -> str:
        return self._uri

    @property
    def version(self) -> int:
        """The only version that is read; -1 if it is always the newest."""
        return -1 if self._version is None else self._version

    def exists(self) -> bool:
        with self._mutex:
            return self._open() is not None

    def snapshot(self) -> TableSnapshot:
        """Return the table as it is now; empty if there is none."""
        with self._mutex:
            table = self._refresh()
            if table is None:
                return _nothing()
            if self._snapshot is None or self._snapshot.version != table.version():
                self._snapshot = self._read(table)
            return self._snapshot

    def create(self) -> None:
        """Make the table, if there is none."""
        if self.exists():
            return
        if self._storage.is_local:
            Path(self._uri).mkdir(parents=True, exist_ok=True)
        with suppress(CommitFailedError):  # another was faster
            DeltaTable.create(
                self._uri,
                Schema.from_arrow(schema_of(self.name)),
                mode="ignore",
                partition_by=[PARTITION],
                name=self.name,
                configuration=dict(CONFIGURATION),
                commit_properties=commit_properties(CREATING),
            )
        self._sync(-1)

    def columns(self, declared: Mapping[str, str]) -> Columns:
        """Return the columns of the declared attributes; those that are new are added."""

        def add(table: DeltaTable) -> bool:
            present = _columns(table)
            new = [each for each in columns_for(declared, present) if each not in present]
            if new:
                table.alter.add_columns(
                    [Field.from_arrow(field_of(each)) for each in new],
                    commit_properties=commit_properties(),
                    post_commithook_properties=_NO_HOOKS,
                )
            return bool(new)

        with self._mutex:
            self.create()
            self._change(add)
            return columns_for(declared, self.snapshot().columns)

    def versions(self) -> dict[int, int]:
        """When each version was made that the log still has, in milliseconds, oldest first."""
        log = pafs.FileSelector(f"{self.name}/{LOG}", allow_not_found=True)
        found = {
            int(info.base_name.removesuffix(".json")): info.mtime_ns // 1_000_000
            for info in self._storage.filesystem.get_file_info(log)
            if _ENTRY.fullmatch(info.base_name)
        }
        return dict(sorted(found.items()))

    def archived(self, node: str) -> int:
        """The first offset of this node's journal that is not in the table."""
        with self._mutex:
            table = self._refresh()
            return 0 if table is None else table.transaction_version(node) or 0

    def append(self, parts: Collection[JournalPart]) -> bool:
        """Commit a batch, except for what had been committed before; False if all had been.

        DeltaLogError if the table does not end where a part begins.
        """

        def add(table: DeltaTable) -> bool:
            reached = {part.node: table.transaction_version(part.node) or 0 for part in parts}
            new = [part for part in parts if reached[part.node] < part.end]
            for part in new:
                if reached[part.node] != part.first:
                    raise self._error(
                        f"offsets {part.first} to {part.end} of {part.node!r} do not follow what is"
                        f" archived, which ends at {reached[part.node]}"
                    )
            transactions = [Transaction(part.node, part.end) for part in new]
            transactions += [
                Transaction(lost_of(part.node), self._lost(table, part.node) + part.lost)
                for part in new
                if part.lost
            ]
            if new:
                files = [file for part in new for file in part.files]
                _commit(table, [add_action(file) for file in files], transactions)
            return bool(new)

        with self._mutex:
            self.create()
            return self._change(add)

    def replace(self, removed: Collection[TableFile], added: Collection[WrittenFile]) -> None:
        """Make `added` part of the table instead of `removed`, which have the same rows.

        DeltaLogError if one of these is not part of the table any more.
        """

        def swap(table: DeltaTable) -> bool:
            self._check_present(table, removed)
            actions = [add_action(each, is_change=False) for each in added]
            _commit(table, actions + [_remove_action(each, is_change=False) for each in removed])
            return True

        with self._mutex:
            self._change(swap)

    def remove(self, files: Collection[TableFile]) -> None:
        """Remove files from the table; DeltaLogError if one is not part of it any more."""

        def remove(table: DeltaTable) -> bool:
            self._check_present(table, files)
            _commit(table, [_remove_action(file, is_change=True) for file in files])
            return True

        with self._mutex:
            self._change(remove)

    def vacuum(self) -> int:
        """Delete files that have not been part of the table for KEPT_H hours."""
        with self._mutex:
            table = self._open()
        if table is None:
            return 0
        # On a table of its own: it lists all files, and others need not wait for that.
        table = DeltaTable(self._uri)
        before = table.version()
        # It names files that it deleted earlier too, until a checkpoint forgets them.
        found = [path for path in table.vacuum(KEPT_H, full=True) if self._has(path)]
        if found:
            table.vacuum(KEPT_H, dry_run=False, full=True)
            self._sync(before)
        return len(found)

    def _has(self, path: str) -> bool:
        return self._storage.exists(f"{self.name}/{path}")

    # The log.

    def _open(self) -> DeltaTable | None:
        if self._table is None:
            if self._storage.is_local:
                _set_aside(Path(self._uri) / LOG)
            try:
                self._table = DeltaTable(self._uri, version=self._version)
            except TableNotFoundError:
                return None
            except (DeltaError, OSError) as error:
                raise self._error(str(error)) from error
        return self._table

    def _refresh(self) -> DeltaTable | None:
        table = self._open()
        if table is not None and self._version is None:
            try:
                table.update_incremental()
            except (DeltaError, OSError) as error:
                self._table = None
                raise self._error(str(error)) from error
        return table

    def _fresh(self) -> DeltaTable:
        table = self._refresh()
        if table is None:
            raise self._error("there is no such table")
        return table

    def _change(self, act: Callable[[DeltaTable], bool]) -> bool:
        """Do this to the newest version, and anew if another was faster; False if nothing is new.

        So `act` decides by just the version that it changes. What delta-rs would let pass of
        changes between the two, such as files removed twice by compactions, can't happen.
        """
        for _ in range(_ATTEMPTS):
            table = self._fresh()
            before = table.version()
            try:
                if not act(table):
                    return False
            except CommitFailedError:
                continue
            except DeltaError as error:
                raise self._error(str(error)) from error
            self._sync(before)
            if (before + 1) % CHECKPOINT_EVERY == 0:
                self._checkpoint()
            return True
        raise self._error(f"others were faster, {_ATTEMPTS} times in a row")

    def _checkpoint(self) -> None:
        """Sum up the log in one file, and delete entries that nobody needs any more."""
        table = self._fresh()
        table.create_checkpoint()
        if self._storage.is_local:
            folder = Path(self._uri) / LOG
            for path in (*folder.glob(f"{table.version():020}.checkpoint*"), folder / _LAST):
                sync_file(path)
            sync_directory(folder)
        table.cleanup_metadata()

    def _check_present(self, table: DeltaTable, files: Iterable[TableFile]) -> None:
        present = set(pa.table(table.get_add_actions())["path"].to_pylist())
        for file in files:
            if file.path not in present:
                raise self._error(f"{file.path} is not part of it any more")

    def _sync(self, before: int) -> None:
        """Make the entries after version `before` durable."""
        if not self._storage.is_local:
            return
        folder = Path(self._uri) / LOG
        version = before + 1
        while (entry := folder / f"{version:020}.json").exists():
            sync_file(entry)
            version += 1
        sync_directory(folder)

    def _read(self, table: DeltaTable) -> TableSnapshot:
        columns = _columns(table)
        rows = pa.table(table.get_add_actions(flatten=True))
        paths = rows["path"].to_pylist()
        new = [index for index, path in enumerate(paths) if path not in self._files]
        found = {
            each.path: each for each in files_of(rows.take(pa.array(new, pa.int64())), columns)
        }
        self._files = {path: found.get(path) or self._files[path] for path in paths}
        known = {node: table.transaction_version(node) or 0 for node in self._nodes}
        lost = {node: self._lost(table, node) for node in self._nodes}
        return TableSnapshot(
            version=table.version(),
            files=tuple(self._files.values()),
            columns=columns,
            archived=known,
            lost={node: count for node, count in lost.items() if count},
            engine=QueryBuilder(_ENGINE).register(self.name, table),
        )

    def _lost(self, table: DeltaTable, node: str) -> int:
        return table.transaction_version(lost_of(node)) or 0

    def _error(self, problem: str) -> DeltaLogError:
        return DeltaLogError(problem, place=self._uri)


class Archive:
    """The tables of one archive, with the journals of `nodes` in them."""

    def __init__(self, place: str | Path, nodes: Sequence[str]) -> None:
        self.storage = Storage(place)
        self.nodes = tuple(nodes)
        self.events = DeltaLog(self.storage, EVENTS, self.nodes)
        self.ledger = DeltaLog(self.storage, LEDGER, self.nodes)

    @property
    def place(self) -> str:
        return self.storage.uri

    def events_at(self, *, version: int | None = None, ms: int | None = None) -> DeltaLog:
        """The events as they were at this version of their table, or at this time.

        DeltaLogError if the log does not have it any more.
        """
        versions = self.events.versions()
        if version is None:
            version = max((each for each, at in versions.items() if at <= (ms or 0)), default=None)
        if version not in versions:
            kept = "there are none"
            if versions:
                first, last = min(versions), max(versions)
                kept = f"there are {first} of {_iso(versions[first])} to {last}"
            raise DeltaLogError(
                f"no such version: {kept}, kept for {LOG_KEPT_MIN} minutes at least",
                place=self.events.place,
            )
        return DeltaLog(self.storage, EVENTS, self.nodes, version=version)

    @property
    def tables(self) -> tuple[DeltaLog, DeltaLog]:
        return self.events, self.ledger

    def archived(self, node: str) -> int:
        """The first offset of this node's journal that is not in both tables."""
        return min(table.archived(node) for table in self.tables)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def lost_of(node: str) -> str:
    """The application transaction that counts the lost records of a node."""
    return f"lost:{node}"


def _iso(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def schema_of(table: str, columns: Columns = ()) -> pa.Schema:
    return arrow_events(columns) if table == EVENTS else arrow_ledger()


def add_action(file: WrittenFile, *, is_change: bool = True) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values={PARTITION: file.day},
        modification_time=now_ms(),
        data_change=is_change,
        stats=file.stats,
    )


def _remove_action(file: TableFile, *, is_change: bool) -> RemoveAction:
    return RemoveAction(
        path=file.path,
        data_change=is_change,
        deletion_timestamp=now_ms(),
        size=file.bytes,
        partition_values={PARTITION: file.day},
    )


def _commit(
    table: DeltaTable,
    actions: list[AddAction | RemoveAction],
    transactions: list[Transaction] | None = None,
) -> None:
    """Commit as the version after the one that `table` has; CommitFailedError if that is taken."""
    table.create_write_transaction(
        actions,
        "append",
        table.schema(),
        [PARTITION],
        commit_properties=commit_properties(len(actions), transactions),
        post_commithook_properties=_NO_HOOKS,
    )


def commit_properties(
    actions: int | None = None, transactions: list[Transaction] | None = None
) -> CommitProperties:
    count = None if actions is None else actions + len(transactions or ())
    return CommitProperties(
        custom_metadata=None if count is None else {_ACTIONS: str(count)},
        max_commit_retries=0,
        app_transactions=transactions,
    )


def _columns(table: DeltaTable) -> Columns:
    return columns_of_schema(pa.schema(table.schema().to_arrow()))


def _nothing() -> TableSnapshot:
    return TableSnapshot(
        version=-1, files=(), columns=(), archived={}, lost={}, engine=QueryBuilder()
    )


def _set_aside(folder: Path) -> None:
    """Rename the newest log entry, and checkpoint, if a power cut has left it incomplete."""
    for pattern, is_whole in (
        ("[0-9]*.json", _is_whole_entry),
        (_CHECKPOINTS, _is_whole_checkpoint),
    ):
        newest = max(folder.glob(pattern), default=None)
        if newest is not None and not is_whole(newest):
            _log.warning("%s is incomplete, and set aside: nothing relied on it yet", newest)
            newest.rename(newest.with_suffix(".damaged"))
            (folder / _LAST).unlink(missing_ok=True)


def _is_whole_entry(path: Path) -> bool:
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines()]
    except ValueError:
        return False
    count = next((each["commitInfo"].get(_ACTIONS) for each in actions if "commitInfo" in each), "")
    return bool(actions) and (not count or len(actions) == int(count) + 1)


def _is_whole_checkpoint(path: Path) -> bool:
    try:
        pq.read_table(path)
    except (pa.ArrowException, OSError):
        return False
    return True
