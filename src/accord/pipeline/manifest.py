"""Which files the tables of an archive consist of, and up to where journals are in it.

    <archive>/_manifest/0000000000000042.json              the 42nd change: files in, files out
    <archive>/_manifest/0000000000000042.checkpoint.json   everything as it was after it

A change takes the next number: its entry is written aside, synced, and linked to the name of that
number, which fails where another process was faster. So an entry is there whole or not at all, and
all changes stand in one order. That each journal is in the tables exactly once rests on offsets: a
batch of the archive says from where to where it goes, and is refused unless it begins just where
the archive ended; a batch that was committed before a crash is recognised by the same.

A lock keeps apart those who commit files and those who delete files nobody has committed. Readers
need no lock. An entry that is missing or damaged is an error: never are tables read without it.
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

from accord.pipeline.durable_files import create, make_folder, replace
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
    """The manifest of one archive; threads may share it."""

    def __init__(self, archive: Path | str, *, clock: Callable[[], int] = _now_ms) -> None:
        self.archive = Path(archive)
        self._folder = self.archive / MANIFEST
        self._clock = clock
        self._mutex = threading.RLock()
        self._state = ManifestState(0)
        self._snapshot = Snapshot()

    def snapshot(self) -> Snapshot:
        """The tables as they are now; without an archive there is nothing in them."""
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
        """Make `added` files part of the tables and `removed` ones not, in one step.

        `moved` says from which offset up to which each node's journal is in `added`. With `lost`
        that may begin behind where the archive ended: the journal has retired what is between.
        Returns when all of it is durable; ManifestError where the tables are not as expected.
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
        """While held, nobody else commits, and nobody deletes what is to be committed."""
        make_folder(self._folder)
        with self._mutex:
            descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _is_done(self, snapshot: Snapshot, moved: Mapping[str, tuple[int, int]]) -> bool:
        """Whether all of it was committed before; part of it can't have been."""
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
            # Others have long gone on: then there is a checkpoint that stands for it.
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
        for version, entry in changes:  # all could be read: not half of them counts
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
        """Of the newest state; it and the one before make older entries superfluous."""
        with self.lock():
            self._catch_up()
            now_ms = self._clock()
            version = self._state.version
            entry = self._state.entry(now_ms)
            replace(self._path(version, is_checkpoint=True), encode_entry(entry))
            self._state.removed = dict(entry.removed)
            self._remove_old(now_ms)

    def _remove_old(self, now_ms: int) -> None:
        """What nobody who began to read before the grace period can still ask for."""
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
