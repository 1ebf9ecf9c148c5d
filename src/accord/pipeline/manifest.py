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

Entries of a manifest: contents, file format, and the state they add up to.
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
from zlib import crc32

import msgspec

from accord.core.model.errors import AccordError
from accord.pipeline.durable_files import create, make_directory, replace
from accord.pipeline.tables import LOST, MANIFEST, FileEntry

GRACE_MS: Final = 600_000  # how long files removed from the tables stay readable
_KEPT_MS: Final = 6 * GRACE_MS  # how long removal times are kept; then the file's age suffices


class ManifestError(AccordError):
    """The manifest can't be read, or refuses a change: `problem` and `place` give the reason."""

    def __init__(self, problem: str, *, place: Path | str) -> None:
        self.problem = problem
        self.place = str(place)
        super().__init__(f"manifest {place}: {problem}")


class MissingError(ManifestError):
    """An entry does not exist."""


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change, or a checkpoint of all up to one."""

    at_ms: int
    added: tuple[FileEntry, ...] = ()
    removed: dict[str, int] = {}  # path -> time of removal
    archived: dict[str, int] = {}
    lost: dict[str, int] = {}


class _Checked(msgspec.Struct, frozen=True):
    """An entry as stored in its file."""

    crc32: int
    entry: msgspec.Raw


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The tables at one time.

    `archived` is, by node, the first offset of its journal that is not in them; `lost` counts the
    records before it that the journal no longer had. `removed` are files that were part of them.
    """

    version: int = 0
    files: tuple[FileEntry, ...] = ()
    archived: dict[str, int] = {}
    lost: dict[str, int] = {}
    removed: dict[str, int] = {}


class Already(msgspec.Struct, frozen=True):
    """The batch had been committed before: nothing was done."""

    snapshot: Snapshot


class ManifestState:
    """The sum of all entries up to `version`."""

    def __init__(self, version: int, entry: ManifestEntry | None = None) -> None:
        self.version = version
        self.files: dict[str, FileEntry] = {}
        self.archived: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.removed: dict[str, int] = {}
        if entry is not None:
            self.apply(version, entry)

    def apply(self, version: int, entry: ManifestEntry) -> None:
        self.version = version
        for path in entry.removed:
            self.files.pop(path, None)
        self.files |= {file.path: file for file in entry.added}
        self.archived |= entry.archived
        self.lost |= entry.lost
        self.removed |= entry.removed

    def snapshot(self) -> Snapshot:
        return Snapshot(
            version=self.version,
            files=tuple(self.files.values()),
            archived=dict(self.archived),
            lost=dict(self.lost),
            removed=dict(self.removed),
        )

    def entry(self, at_ms: int) -> ManifestEntry:
        recent = {path: ms for path, ms in self.removed.items() if ms > at_ms - _KEPT_MS}
        return ManifestEntry(
            at_ms=at_ms,
            added=tuple(self.files.values()),
            removed=recent,
            archived=self.archived,
            lost=self.lost,
        )


_checked: Final = msgspec.json.Decoder(_Checked)
_entry: Final = msgspec.json.Decoder(ManifestEntry)


def read_entry(path: Path) -> ManifestEntry:
    try:
        checked = _checked.decode(path.read_bytes())
        if crc32(checked.entry) != checked.crc32:
            raise ManifestError("its checksum is wrong", place=path)
        return _entry.decode(checked.entry)
    except FileNotFoundError:
        problem = "is missing: what is part of the tables would be unknown"
        raise MissingError(problem, place=path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"is damaged: {error}", place=path) from None


def encode_entry(entry: ManifestEntry) -> bytes:
    raw = msgspec.json.encode(entry)
    return msgspec.json.encode(_Checked(crc32(raw), msgspec.Raw(raw))) + b"\n"


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
