"""The port to the file system: one directory, and only the operations a journal needs.

Files are only appended to, truncated, or (small ones) overwritten in place. No data is durable
before `sync`, and no name before `sync_names`. `faults.FaultDisk` is a fake with crashes and
errors.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from accord.journal.errors import JournalError, LockedError

LOCK: Final = "lock"
_MAX_PARTS: Final = 1024  # of one writev on Linux; other systems allow as many
_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class ReadFile(Protocol):
    """A file open for reading; it may grow meanwhile."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer only where the file ends."""

    def close(self) -> None: ...


class AppendFile(Protocol):
    """A file open for writing. If `append` fails, any part of its data may be in the file."""

    def append(self, parts: list[bytes]) -> None: ...
    def overwrite(self, data: bytes, position: int = 0) -> None:
        """Replace bytes of the file, or write the first ones of an empty file."""

    def sync(self) -> None: ...
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """One directory. Everything but `lock` raises OSError if the system refuses."""

    @property
    def location(self) -> str:
        """The directory's name in messages."""

    def lock(self) -> None:
        """Create the directory if necessary, and be its only writer until `unlock`."""

    def unlock(self) -> None: ...
    def names(self) -> list[str]: ...
    def size(self, name: str) -> int: ...
    def source(self, name: str) -> ReadFile: ...
    def sink(self, name: str) -> AppendFile:
        """Open an existing file, to append to it."""

    def create(self, name: str) -> AppendFile:
        """Create a file that must not exist yet."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing any other of that name."""

    def remove(self, name: str) -> None: ...
    def sync_names(self) -> None: ...


class OsDisk:
    """A directory of the operating system."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self._lock: int | None = None

    @property
    def location(self) -> str:
        return str(self._directory)

    def lock(self) -> None:
        assert self._lock is None, "locked already"
        try:
            _make_directory(self._directory)
            lock = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise JournalError(
                f"can't be opened: {error.strerror}", location=self.location
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 20, 0).strip()
            os.close(lock)
            if isinstance(error, BlockingIOError):
                number = int(holder) if holder.isdigit() else None
                raise LockedError(location=self.location, holder=number) from None
            raise JournalError(
                f"can't be locked: {error.strerror}", location=self.location
            ) from error
        with suppress(OSError):  # only for the message above: a full disk is no obstacle
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def names(self) -> list[str]:
        return sorted(os.listdir(self._directory))

    def size(self, name: str) -> int:
        return (self._directory / name).stat().st_size

    def source(self, name: str) -> OsFile:
        return OsFile(os.open(self._directory / name, os.O_RDONLY))

    def sink(self, name: str) -> OsFile:
        return OsFile(os.open(self._directory / name, os.O_WRONLY))

    def create(self, name: str) -> OsFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        return OsFile(os.open(self._directory / name, flags, 0o640))

    def rename(self, old: str, new: str) -> None:
        os.replace(self._directory / old, self._directory / new)

    def remove(self, name: str) -> None:
        os.unlink(self._directory / name)

    def sync_names(self) -> None:
        _sync_directory(self._directory)


class OsFile:
    """A file of the operating system, as `ReadFile` or as `AppendFile`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size  # of what has been written; unused when reading

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) in (0, size):
            return data
        pieces = [data]  # Linux reads at most 2 GB at once, other systems less
        while data and (size := size - len(data)) > 0:
            position += len(data)
            data = os.pread(self._descriptor, size, position)
            pieces.append(data)
        return b"".join(pieces)

    def append(self, parts: list[bytes]) -> None:
        views = [memoryview(part) for part in parts]
        end = self._end
        while views:
            written = os.pwritev(self._descriptor, views[:_MAX_PARTS], end)
            end += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]
        self._end = end

    def overwrite(self, data: bytes, position: int = 0) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, position)
            data = data[written:]
            position += written

    def sync(self) -> None:
        _sync_data(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._end = size

    def close(self) -> None:
        os.close(self._descriptor)


def _make_directory(directory: Path) -> None:
    """Create the directory and its parents, each durably."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    with suppress(FileExistsError):
        directory.mkdir()
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
