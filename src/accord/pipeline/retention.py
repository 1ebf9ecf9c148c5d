"""Retention: expires old days and removes orphaned files.

A file removed from the tables stays for a grace period, because a query may be reading it. A file
that was never part of them was left by a crash or is about to be committed, so only old ones are
removed, and while the manifest is locked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from accord.pipeline.durable_files import UNFINISHED
from accord.pipeline.manifest import GRACE_MS, Manifest, Snapshot
from accord.pipeline.tables import EVENTS, LEDGER, MANIFEST, PAYLOADS, UNREAD, day_end_ms

__all__ = ["GRACE_MS", "expire", "remove_orphans"]

_AT_ONCE: Final = 500  # files deleted per lock


def expire(manifest: Manifest, before_ms: int) -> int:
    """Remove all days from the tables that had ended by then; returns the number of files."""
    removed = [file.path for file in manifest.snapshot().files if day_end_ms(file.day) <= before_ms]
    if removed:
        manifest.commit(removed=removed)
    for path in (manifest.archive / UNREAD).glob("*"):
        if _is_older(path, before_ms):
            path.unlink(missing_ok=True)
    return len(removed)


def remove_orphans(manifest: Manifest, older_than_ms: int) -> int:
    """Delete files that left the tables before that time, or were written before and never in them.

    Payloads are deleted with the last file of their day.
    """
    count = 0
    candidates = _candidates(manifest.archive, older_than_ms)
    while some := list(islice(candidates, _AT_ONCE)):
        with manifest.lock():
            snapshot = manifest.snapshot()
            keeping = _Keeping(snapshot, older_than_ms)
            for path in some:
                if not keeping.keeps(path):
                    with suppress(FileNotFoundError):
                        (manifest.archive / path).unlink()
                        count += 1
    _remove_empty(manifest.archive, older_than_ms)
    return count


class _Keeping:
    """The files to keep, by their path in the archive."""

    def __init__(self, snapshot: Snapshot, older_than_ms: int) -> None:
        self._files = {file.path for file in snapshot.files}
        self._readable = {path for path, ms in snapshot.removed.items() if ms >= older_than_ms}
        self._days = {
            _day_of(path)
            for path in (*self._files, *self._readable)
            if path.startswith(f"{EVENTS}/")
        }

    def keeps(self, path: str) -> bool:
        if path.startswith(f"{PAYLOADS}/"):
            return _day_of(path) in self._days
        if path.startswith((f"{EVENTS}/", f"{LEDGER}/")):
            return path in self._files or path in self._readable
        return False


def _day_of(path: str) -> str:
    return path.split("/")[1].removeprefix("day=")


def _candidates(archive: Path, older_than_ms: int) -> Iterator[str]:
    """All files that are old enough, including temporary ones in the manifest's directory."""
    for top in (EVENTS, LEDGER, PAYLOADS, MANIFEST):
        for folder, _, names in os.walk(archive / top):
            for name in names:
                path = Path(folder) / name
                if top == MANIFEST and not name.startswith(UNFINISHED):
                    continue
                if _is_older(path, older_than_ms):
                    yield str(path.relative_to(archive))


def _is_older(path: Path, ms: int) -> bool:
    try:
        return path.stat().st_mtime_ns // 1_000_000 < ms
    except FileNotFoundError:
        return False


def _remove_empty(archive: Path, older_than_ms: int) -> None:
    """Remove empty directories of days and groups, unless a file is just being added."""
    for top in (EVENTS, LEDGER, PAYLOADS):
        for folder, _, _ in os.walk(archive / top, topdown=False):
            path = Path(folder)
            if path != archive / top and _is_older(path, older_than_ms):
                with suppress(OSError):  # not empty
                    path.rmdir()
