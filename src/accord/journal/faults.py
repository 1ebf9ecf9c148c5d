"""An in-memory disk that crashes, fails and loses writes as real ones do; for tests and simulation.

It separates what the running program sees from what would be found after a crash. Every change is
pending until the next successful `sync` of its file, or `sync_names` of the directory. At a crash
any subset of the pending changes may have happened: each block of a write on its own (gaps read as
zeros), and each name on its own. If a `sync` fails, the pending changes are discarded although they
can still be read, and no later `sync` makes them durable, as on Linux.

`choose(n)` returns a number from 0 to n and makes all decisions: a seed or a search replays them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

import msgspec

from accord.journal.errors import LockedError

_BLOCK: Final = 512


class Crash(BaseException):
    """The machine stops here; what the program does afterwards has no effect."""


class _Write(msgspec.Struct, frozen=True):
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.data)] = self.data

    def blocks(self) -> list[_Change]:
        """Split the change into the blocks that a disk writes or fails to write."""
        pieces: list[_Change] = []
        start, end = self.position, self.position + len(self.data)
        while start < end:
            following = min(end, (start // _BLOCK + 1) * _BLOCK)
            piece = self.data[start - self.position : following - self.position]
            pieces.append(_Write(start, piece))
            start = following
        return pieces


class _Cut(msgspec.Struct, frozen=True):
    size: int

    def apply(self, content: bytearray) -> None:
        if len(content) < self.size:
            content.extend(bytes(self.size - len(content)))
        del content[self.size :]

    def blocks(self) -> list[_Change]:
        return [self]


_Change = _Write | _Cut


class _File:
    def __init__(self, content: bytes = b"") -> None:
        self.seen = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[_Change] = []

    def change(self, change: _Change) -> None:
        change.apply(self.seen)
        self.pending.append(change)

    def resolve_pending(self, survives: Callable[[], bool]) -> None:
        """Make the pending changes that survive durable, and discard the others."""
        self.durable = self.surviving(survives)
        self.pending = []

    def surviving(self, survives: Callable[[], bool]) -> bytearray:
        """The durable content, with the pending changes that survive."""
        content = bytearray(self.durable)
        for change in self.pending:
            for block in change.blocks():
                if survives():
                    block.apply(content)
        return content


class _Renaming(msgspec.Struct, frozen=True):
    """A rename from `old` to `new`, or the creation (`file`) or removal (no `new`) of a name."""

    old: str = ""
    new: str = ""
    file: _File | None = None

    def apply(self, names: dict[str, _File]) -> None:
        file = self.file or names.get(self.old)
        names.pop(self.old, None)
        if file is not None and self.new:
            names[self.new] = file


class FaultDisk:
    """A directory in memory. `capacity` limits its bytes; `operations` counts the operations."""

    def __init__(
        self,
        choose: Callable[[int], int] = lambda _: 0,
        *,
        capacity: int | None = None,
        location: str = "memory",
    ) -> None:
        self.capacity = capacity
        self.operations = 0
        self.crash_at: int | None = None  # number of the operation that does not return
        self.trace: list[str] = []
        self._location = location
        self._choose = choose
        self._names: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._waiting: list[_Renaming] = []
        self._faults: dict[str, list[int]] = {}
        self._is_locked = self._is_down = False

    @property
    def location(self) -> str:
        return self._location

    def fail(self, operation: str, number: int, *, times: int = 1) -> None:
        """Make the next calls of `operation` ("sync", "append", …) raise the OSError `number`."""
        self._faults.setdefault(operation, []).extend([number] * times)

    def damage(self, name: str, position: int, flip: int = 0xFF) -> None:
        """Change one byte of a file, as a bad disk does."""
        file = self._names[name]
        file.resolve_pending(lambda: True)
        file.seen[position] ^= flip
        file.durable[position] ^= flip

    def crash(self) -> FaultDisk:
        """The disk as found if the machine stops now and restarts."""
        found = FaultDisk(self._choose, capacity=self.capacity, location=self._location)
        names = dict(self._durable)
        for renaming in self._waiting:
            if self._survives():
                renaming.apply(names)
        for name, file in names.items():
            found._names[name] = _File(bytes(file.surviving(self._survives)))
        found._durable = dict(found._names)
        return found

    def kill(self) -> None:
        """End only the program: pending changes stay pending, and the next one can read them."""
        self._is_down = self._is_locked = False
        self.crash_at = None
        self._faults.clear()

    def lock(self) -> None:
        self._operate("lock")
        if self._is_locked:
            raise LockedError(location=self.location, holder=None)
        self._is_locked = True

    def unlock(self) -> None:
        self._is_locked = False

    def names(self) -> list[str]:
        return sorted(self._names)

    def size(self, name: str) -> int:
        return len(self._find(name).seen)

    def source(self, name: str) -> FaultFile:
        return FaultFile(self, self._find(name))

    def sink(self, name: str) -> FaultFile:
        return FaultFile(self, self._find(name))

    def create(self, name: str) -> FaultFile:
        self._operate("create")
        if name in self._names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        file = _File()
        self._rename(_Renaming(new=name, file=file))
        return FaultFile(self, file)

    def rename(self, old: str, new: str) -> None:
        self._operate("rename")
        self._find(old)
        self._rename(_Renaming(old, new))

    def remove(self, name: str) -> None:
        self._operate("remove")
        self._find(name)
        self._rename(_Renaming(name))

    def sync_names(self) -> None:
        self._operate("sync_names")
        self._durable = dict(self._names)
        self._waiting = []

    def _rename(self, renaming: _Renaming) -> None:
        renaming.apply(self._names)
        self._waiting.append(renaming)

    def _find(self, name: str) -> _File:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._names[name]

    def _survives(self) -> bool:
        return self._choose(1) == 1

    def _room(self) -> int | None:
        """The free bytes, if capacity is limited."""
        if self.capacity is None:
            return None
        return max(0, self.capacity - sum(len(file.seen) for file in self._names.values()))

    def _operate(self, operation: str) -> None:
        if self._is_down or self.operations == self.crash_at:
            self._is_down = True
            raise Crash(operation)
        self.operations += 1
        self.trace.append(operation)
        if faults := self._faults.get(operation):
            number = faults.pop(0)
            raise OSError(number, os.strerror(number))


class FaultFile:
    """A file of a `FaultDisk`, as `ReadFile` or as `AppendFile`."""

    def __init__(self, disk: FaultDisk, file: _File) -> None:
        self._disk = disk
        self._file = file

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._file.seen[position : position + size])

    def append(self, parts: list[bytes]) -> None:
        data = b"".join(parts)
        position = len(self._file.seen)
        try:
            self._disk._operate("append")
        except (OSError, Crash):
            self._file.change(_Write(position, data[: self._disk._choose(len(data))]))
            raise
        room = self._disk._room()
        if room is not None and room < len(data):
            self._file.change(_Write(position, data[:room]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._file.change(_Write(position, data))

    def overwrite(self, data: bytes, position: int = 0) -> None:
        self._disk._operate("overwrite")
        self._file.change(_Write(position, data))

    def sync(self) -> None:
        try:
            self._disk._operate("sync")
        except OSError:
            self._file.resolve_pending(self._disk._survives)
            raise
        self._file.resolve_pending(lambda: True)

    def truncate(self, size: int) -> None:
        self._disk._operate("truncate")
        self._file.change(_Cut(size))

    def close(self) -> None:
        """Do nothing: closing makes nothing durable."""
