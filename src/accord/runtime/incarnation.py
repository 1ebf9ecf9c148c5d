"""The node's incarnation: a number that is larger at each start.

Other nodes use it to recognise what is newer: state records, ordered events, requests, links. It is
the wall clock in milliseconds. A clock set back between two starts would make the node's messages
older than what others have stored, so the last incarnation is kept in the data directory; without a
directory there is only the clock.

Sequence numbers start at a multiple of the incarnation (`NUMBERS` of the broker, and others), and
the clock outruns them: nothing is numbered every thousandth of a microsecond. Where the clock is
behind, the next incarnation is `STEP_MS` later, which leaves room for as many numbers.
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
LATEST_MS: Final = 4_000_000_000_000  # larger values are no time; sequence numbers have 62 bits
_MAX_BYTES: Final = 64


def next_incarnation(folder: Path | None, now_ms: int) -> int:
    """An incarnation larger than all before, stored in `folder`."""
    if folder is None:
        return now_ms
    chosen = now_ms
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY)
        try:
            # Two processes must not share the directory, but only the journal detects that.
            fcntl.flock(place, fcntl.LOCK_EX)
            last = _read(folder / FILE)
            chosen = now_ms if now_ms > last else last + STEP_MS
            _write(folder / FILE, chosen)
            os.fsync(place)
        finally:
            os.close(place)
    except OSError as error:
        log.warning("incarnation file: not written", folder=str(folder), problem=str(error))
    if chosen > now_ms:
        log.warning("system clock: behind an earlier start", ms=chosen - now_ms)
    return chosen


def _read(file: Path) -> int:
    """0 if there is no usable number."""
    try:
        with file.open("rb") as stream:
            found = stream.read(_MAX_BYTES)
    except FileNotFoundError:
        return 0
    with suppress(msgspec.DecodeError):
        last = msgspec.json.decode(found, type=int)
        if 0 <= last <= LATEST_MS:
            return last
    log.warning("incarnation file damaged, rewriting it", file=str(file))
    return 0


def _write(file: Path, incarnation: int) -> None:
    """Write atomically."""
    unfinished = file.with_suffix(".tmp")
    with unfinished.open("wb") as stream:
        stream.write(msgspec.json.encode(incarnation))
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)
