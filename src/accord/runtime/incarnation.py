"""Which life of the node this is: a number that is larger each time it starts.

Other nodes tell by it what is new: facts, events in order, questions, links. It is the clock's time
in milliseconds, as long as that goes on. A clock that is set back between two lives would make all
that the node says older than what others remember of it, so the last number is kept in the data
folder. Without one there is only the clock.

What a life numbers begins at a multiple of its incarnation (`NUMBERS` of the broker, and others),
and is passed by the clock: nothing takes a thousandth of a microsecond. Where the clock does not
count the next life begins `STEP_MS` later, which leaves room for as much as that.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from accord.runtime.logs import get_log

log = get_log(__name__)

FILE: Final = "incarnation"
STEP_MS: Final = 60_000  # room for 60 thousand million events
LATEST_MS: Final = 4_000_000_000_000  # more than that was never a time; numbers have 62 bits
_MAX_BYTES: Final = 64


def begin(folder: Path | None, now_ms: int) -> int:
    """A number larger than all before, kept in `folder`."""
    if folder is None:
        return now_ms
    chosen = now_ms
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY)
        try:
            # Nobody else may use the folder, but only the journal finds out who does.
            fcntl.flock(place, fcntl.LOCK_EX)
            last = _read(folder / FILE)
            chosen = now_ms if now_ms > last else last + STEP_MS
            _write(folder / FILE, chosen)
            os.fsync(place)
        finally:
            os.close(place)
    except OSError as error:
        log.warning("can't keep when the node started", folder=str(folder), problem=str(error))
    if chosen > now_ms:
        log.warning("the clock is behind an earlier start of the node", ms=chosen - now_ms)
    return chosen


def _read(file: Path) -> int:
    """0 where there is none, or none that can be used."""
    try:
        with file.open("rb") as stream:
            found = stream.read(_MAX_BYTES)
    except FileNotFoundError:
        return 0
    with suppress(msgspec.DecodeError):
        last = msgspec.json.decode(found, type=int)
        if 0 <= last <= LATEST_MS:
            return last
    log.warning("when the node started last is damaged, and written anew", file=str(file))
    return 0


def _write(file: Path, incarnation: int) -> None:
    """All of it or nothing."""
    unfinished = file.with_suffix(".tmp")
    with unfinished.open("wb") as stream:
        stream.write(msgspec.json.encode(incarnation))
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)
