"""One driver at a time: a lock on the work folder, held by the process that commits.

A killed driver's lock goes with it, but the Java it started lives on for a second. The lock's
file says which that is, and whoever comes next waits for its end: two of them at once would
take twice the memory, which a small machine may not have.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

LOCK: Final = "driver.lock"
_PAUSE_S: Final = 0.2
_JAVA_PATIENCE_S: Final = 15.0


class Holder(msgspec.Struct, frozen=True):
    """`started` tells a process from a later one with the same number."""

    process: int = 0
    java: int = 0
    java_started: str = ""


class DriverLock:
    """Of the pipeline whose work folder this is."""

    def __init__(self, work: Path | str) -> None:
        self._path = Path(work) / LOCK
        self._file: int | None = None

    def try_acquire(self) -> Holder | None:
        """None where it is ours now, else who has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(file)
            os.close(file)
            return holder
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return None

    def acquire(self, stopping: threading.Event, on_wait: Callable[[Holder], object]) -> bool:
        """Wait until it is ours, and the predecessor's Java gone; False where we are to stop."""
        told = False
        while (holder := self.try_acquire()) is not None:
            if not told:
                on_wait(holder)
                told = True
            if stopping.wait(_PAUSE_S):
                return False
        assert self._file is not None
        before = _read(self._file)
        patience = round(_JAVA_PATIENCE_S / _PAUSE_S)
        while patience and before.java and started_of(before.java) == before.java_started:
            patience -= 1
            if stopping.wait(_PAUSE_S):
                self.release()
                return False
        return True

    def note(self, java: int | None) -> None:
        """Which Java our successor has to wait for."""
        assert self._file is not None
        holder = Holder(os.getpid(), java or 0, started_of(java) if java else "")
        with suppress(OSError):  # just for courtesy: a full disk is no hindrance
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(holder), 0)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def started_of(process: int) -> str:
    """When this process was started, in the system's own count; nothing where there is none."""
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = told.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _read(file: int) -> Holder:
    with suppress(msgspec.DecodeError, OSError):
        return msgspec.json.decode(os.pread(file, 1_000, 0), type=Holder)
    return Holder()
