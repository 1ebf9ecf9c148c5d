"""The secret with which a node signs receipts, stored so that they stay valid across restarts.

A reader of the secret can forge the node's receipts, so only the node may read the file. A file
that is damaged, or readable by others, is logged; a damaged one is replaced, which voids the
receipts signed with it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from accord.core.model.receipts import SECRET_BYTES
from accord.runtime.logs import get_log

log = get_log(__name__)

FILE: Final = "feedback.key"
_ONLY_OURS: Final = 0o600
_OTHERS: Final = 0o077


def load_receipt_secret(folder: Path | None) -> bytes:
    """The secret in `folder`, created if missing; without a folder, for this run only."""
    if folder is None:
        return secrets.token_bytes(SECRET_BYTES)
    file = folder / FILE
    try:
        known = _read(file)
    except OSError as error:
        # Not replaced: the file may be readable again next time.
        log.warning("receipt secret: not readable", file=str(file), problem=str(error))
        return secrets.token_bytes(SECRET_BYTES)
    if known is not None:
        return known
    made = secrets.token_bytes(SECRET_BYTES)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(file, made)
    except OSError as error:
        log.warning("receipt secret: not written", file=str(file), problem=str(error))
    return made


def _read(file: Path) -> bytes | None:
    """None if there is no usable secret."""
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_mode & _OTHERS:
                log.warning("receipt secret: was readable by other users", file=str(file))
                os.fchmod(stream.fileno(), _ONLY_OURS)
            found = stream.read(SECRET_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(found) == SECRET_BYTES:
        return found
    log.warning("receipt secret: damaged, creating a new one", file=str(file))
    return None


def _write(file: Path, secret: bytes) -> None:
    """Write atomically, never readable by others."""
    unfinished = file.with_suffix(".tmp")
    with suppress(FileNotFoundError):
        unfinished.unlink()
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_OURS)
    with open(descriptor, "wb") as stream:
        stream.write(secret)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
