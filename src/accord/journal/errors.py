"""Errors of a journal, with the facts a caller needs to show or act on."""

from __future__ import annotations

import errno
from typing import Final

from accord.core.model.errors import AccordError

# Errors that pass when resources are freed; any other is treated as a failure of the disk.
_TRANSIENT: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)


class JournalError(AccordError):
    """A failed operation, and where it failed; `is_final` if retrying cannot help."""

    def __init__(self, problem: str, *, location: str, is_final: bool = True) -> None:
        self.problem = problem
        self.location = location
        self.is_final = is_final
        super().__init__(f"journal {location}: {problem}")


class LockedError(JournalError):
    """Another process (`holder`, if known) is writing this journal."""

    def __init__(self, *, location: str, holder: int | None) -> None:
        self.holder = holder
        who = "another process" if holder is None else f"process {holder}"
        super().__init__(
            f"is being written by {who}; stop it, or use another folder", location=location
        )


def from_os(error: OSError, doing: str, *, location: str) -> JournalError:
    """Convert an OSError of the disk."""
    why = error.strerror or str(error)
    remedy = "; resumes when there is space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return JournalError(
        f"{doing}: {why}{remedy}", location=location, is_final=not is_transient(error)
    )


def is_transient(error: OSError) -> bool:
    """Whether a retry may succeed later."""
    return error.errno in _TRANSIENT
