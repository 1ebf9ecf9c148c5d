"""A lock on the work directory: one driver at a time, held by the process that commits.

A killed driver's lock is released with it, but the Java it started survives for a second. The lock
file names that process, and the next driver waits for its exit: two at once would take twice the
memory, which a small machine may not have.
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
    """The lock's owner; `started` distinguishes it from a later process with the same PID."""

    process: int = 0
    java: int = 0
    java_started: str = ""


class DriverLock:
    """The lock of the pipeline with this work directory."""

    def __init__(self, work: Path | str) -> None:
        self._path = Path(work) / LOCK
        self._file: int | None = None

    def try_acquire(self) -> Holder | None:
        """Return None if acquired, else the current holder."""
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
        """Wait for the lock and for the exit of the previous Java; False if stopped meanwhile."""
        is_reported = False
        while (holder := self.try_acquire()) is not None:
            if not is_reported:
                on_wait(holder)
                is_reported = True
            if stopping.wait(_PAUSE_S):
                return False
        assert self._file is not None
        before = _read(self._file)
        attempts = round(_JAVA_PATIENCE_S / _PAUSE_S)
        while attempts and before.java and started_of(before.java) == before.java_started:
            attempts -= 1
            if stopping.wait(_PAUSE_S):
                self.release()
                return False
        return True

    def record(self, java: int | None) -> None:
        """Record which Java the next driver has to wait for."""
        assert self._file is not None
        holder = Holder(os.getpid(), java or 0, started_of(java) if java else "")
        with suppress(OSError):  # optional: a full disk must not prevent the start
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(holder), 0)

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def started_of(process: int) -> str:
    """Start time of a process, in system units; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _read(file: int) -> Holder:
    with suppress(msgspec.DecodeError, OSError):
        return msgspec.json.decode(os.pread(file, 1_000, 0), type=Holder)
    return Holder()
