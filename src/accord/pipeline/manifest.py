"""The manifest: which files make up an archive's tables, and how far each journal is archived.

    <archive>/_manifest/0000000000000042.json              the 42nd change: files in, files out
    <archive>/_manifest/0000000000000042.checkpoint.json   everything as it was after it

A log of numbered commits with checkpoints and optimistic concurrency, as in Delta Lake. A change
takes the next number: its entry is written to a temporary file, synced, and linked to the name of
that number, which fails if another process was faster. So an entry exists completely or not at all,
and all changes are totally ordered. Exactly-once archiving rests on offsets: a batch states its
range, and is refused unless it starts where the archive ended; a batch committed before a crash is
recognised by its range too.

A lock separates committers from the removal of uncommitted files. Readers need no lock. A missing
or damaged entry is an error: tables are never read without it.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from accord.pipeline.durable_files import create, make_directory, replace
from accord.pipeline.manifest_entries import (
    GRACE_MS,
    Already,
    ManifestEntry,
    ManifestError,
    ManifestState,
    MissingError,
    Snapshot,
    encode_entry,
    read_entry,
)
from accord.pipeline.tables import LOST, MANIFEST, FileEntry

__all__ = ["CHECKPOINT_EVERY", "GRACE_MS", "Already", "Manifest", "ManifestError", "Snapshot"]

CHECKPOINT_EVERY: Final = 100
_NAME: Final = re.compile(r"([0-9]{16})(\.checkpoint)?\.json")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Manifest:
    """The manifest of one archive; thread-safe."""

    def __init__(self, archive: Path | str, *, clock: Callable[[], int] = _now_ms) -> None:
        self.archive = Path(archive)
        self._folder = self.archive / MANIFEST
        self._clock = clock
        self._mutex = threading.RLock()
        self._state = ManifestState(0)
        self._snapshot = Snapshot()

    def snapshot(self) -> Snapshot:
        """Return the current tables; empty if there is no archive."""
        with self._mutex:
            self._catch_up()
            if self._snapshot.version != self._state.version:
                self._snapshot = self._state.snapshot()
            return self._snapshot

    def commit(
        self,
        *,
        added: Iterable[FileEntry] = (),
        removed: Iterable[str] = (),
        moved: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        lost: bool = False,
    ) -> Snapshot | Already:
        """Atomically make `added` files part of the tables and `removed` ones not.

        `moved` is the range of each node's journal in `added`. With `lost` a range may start after
        the archive's end: the journal has retired the records between. Returns when the change is
        durable; ManifestError if the tables are not in the expected state.
        """
        added, removed = tuple(added), tuple(removed)
        while True:
            with self.lock():
                snapshot = self.snapshot()
                if moved and self._is_done(snapshot, moved):
                    return Already(snapshot)
                entry = self._entry(snapshot, added, removed, moved, lost=lost)
                version = snapshot.version + 1
                if create(self._path(version), encode_entry(entry)):
                    break
        snapshot = self.snapshot()
        if version % CHECKPOINT_EVERY == 0:
            self._write_checkpoint()
        return snapshot

    @contextmanager
    def lock(self) -> Iterator[None]:
        """While held, no other process commits, and none deletes uncommitted files."""
        make_directory(self._folder)
        with self._mutex:
            descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _is_done(self, snapshot: Snapshot, moved: Mapping[str, tuple[int, int]]) -> bool:
        """Whether the change was committed before; part of it can't have been."""
        reached = snapshot.archived
        real = {node for node, (first, end) in moved.items() if first < end}
        done = {node for node in real if reached.get(node, 0) >= moved[node][1]}
        if done and done != real:
            raise self._error(f"of a batch only {', '.join(sorted(done))} had been committed")
        return bool(done)

    def _entry(
        self,
        snapshot: Snapshot,
        added: tuple[FileEntry, ...],
        removed: tuple[str, ...],
        moved: Mapping[str, tuple[int, int]],
        *,
        lost: bool,
    ) -> ManifestEntry:
        files = tuple(file for file in added if file.table != LOST)
        missing = dict(snapshot.lost)
        for file in added:
            if file.table == LOST:
                missing[file.node] = missing.get(file.node, 0) + file.rows
        for node, (first, end) in moved.items():
            reached = snapshot.archived.get(node, 0)
            if not 0 <= first <= end or reached > first or (reached < first and not lost):
                raise self._error(
                    f"offsets {first} to {end} of {node!r} do not follow what is archived, which"
                    f" ends at {reached}"
                )
            if reached < first:
                missing[node] = missing.get(node, 0) + first - reached
        self._check_files(snapshot, files, removed)
        now_ms = self._clock()
        return ManifestEntry(
            at_ms=now_ms,
            added=files,
            removed=dict.fromkeys(removed, now_ms),
            archived={node: end for node, (_, end) in moved.items()},
            lost=missing if missing != snapshot.lost else {},
        )

    def _check_files(
        self, snapshot: Snapshot, added: tuple[FileEntry, ...], removed: tuple[str, ...]
    ) -> None:
        known = self._state.files
        assert snapshot.version == self._state.version
        for path in removed:
            if path not in known:
                raise self._error(f"{path} is not part of the tables (any more)")
        for file in added:
            if file.path in known:
                raise self._error(f"{file.path} is part of the tables already")
            if not (self.archive / file.path).is_file():
                raise self._error(f"{file.path} is not there (any more)")

    # Reading and writing entries.

    def _catch_up(self) -> None:
        try:
            self._state = self._newest()
        except MissingError:
            # Far behind: a checkpoint replaces the missing entries.
            self._state = self._newest(is_behind=True)

    def _newest(self, *, is_behind: bool = False) -> ManifestState:
        entries, checkpoints = self._versions()
        newest = max((*entries, *checkpoints), default=0)
        state = self._state
        if newest < state.version:
            raise self._error(f"ends at {newest}, but {state.version} had been read")
        checkpoint = max(checkpoints, default=0)
        is_behind |= newest - state.version > CHECKPOINT_EVERY
        if checkpoint > state.version and is_behind:
            state = ManifestState(
                checkpoint, read_entry(self._path(checkpoint, is_checkpoint=True))
            )
        wanted = range(state.version + 1, newest + 1)
        changes = [(version, read_entry(self._path(version))) for version in wanted]
        for version, entry in changes:  # apply only after all could be read
            state.apply(version, entry)
        return state

    def _versions(self) -> tuple[set[int], set[int]]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            names = []
        found: tuple[set[int], set[int]] = (set(), set())
        for name in names:
            if match := _NAME.fullmatch(name):
                found[match[2] is not None].add(int(match[1]))
        return found

    def _path(self, version: int, *, is_checkpoint: bool = False) -> Path:
        return self._folder / f"{version:016d}{'.checkpoint' * is_checkpoint}.json"

    def _write_checkpoint(self) -> None:
        """Write the newest state; entries before the previous checkpoint become obsolete."""
        with self.lock():
            self._catch_up()
            now_ms = self._clock()
            version = self._state.version
            entry = self._state.entry(now_ms)
            replace(self._path(version, is_checkpoint=True), encode_entry(entry))
            self._state.removed = dict(entry.removed)
            self._remove_old(now_ms)

    def _remove_old(self, now_ms: int) -> None:
        """Remove entries that no reader from before the grace period can still need."""
        entries, checkpoints = self._versions()
        base = sorted((0, 0, *checkpoints))[-2]
        paths = [self._path(version) for version in entries if version <= base]
        paths += [
            self._path(version, is_checkpoint=True) for version in checkpoints if version < base
        ]
        for path in paths:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime_ns // 1_000_000 < now_ms - GRACE_MS:
                    path.unlink()

    def _error(self, problem: str) -> ManifestError:
        return ManifestError(problem, place=self._folder)
