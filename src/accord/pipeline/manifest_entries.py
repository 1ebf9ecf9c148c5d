"""Entries of a manifest: contents, file format, and the state they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from accord.core.model.errors import AccordError
from accord.pipeline.tables import FileEntry

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
