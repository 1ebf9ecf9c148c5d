"""Durable file operations: data and names are synced to disk when a function returns."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

UNFINISHED = ".tmp-"


def sync_directory(folder: Path) -> None:
    """Sync the directory's names."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(folder: Path) -> None:
    """Create it and its parents, each durably."""
    if folder.is_dir():
        return
    make_directory(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    sync_directory(folder.parent)


def write_temporary(folder: Path, data: bytes) -> Path:
    """Write `data` to a temporary file."""
    path = folder / f"{UNFINISHED}{uuid4().hex}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return path


def replace(path: Path, data: bytes) -> None:
    """Atomically replace the file at `path` with `data`."""
    aside = write_temporary(path.parent, data)
    aside.replace(path)
    sync_directory(path.parent)


def create(path: Path, data: bytes) -> bool:
    """The same, only if the file does not exist; returns whether it was created."""
    aside = write_temporary(path.parent, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_directory(path.parent)
    return True
