"""Files that are on the disk, under their names, when a function returns."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

UNFINISHED = ".tmp-"


def sync_folder(folder: Path) -> None:
    """Make the names in it durable."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """With every folder above it, each of them durably."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    sync_folder(folder.parent)


def write_aside(folder: Path, data: bytes) -> Path:
    """`data` in a file that has no name of its own yet."""
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
    """The file at `path`, whichever there was before, is `data` now: all of it or nothing."""
    aside = write_aside(path.parent, data)
    aside.replace(path)
    sync_folder(path.parent)


def create(path: Path, data: bytes) -> bool:
    """The same, only where there was none; whether that was so."""
    aside = write_aside(path.parent, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_folder(path.parent)
    return True
