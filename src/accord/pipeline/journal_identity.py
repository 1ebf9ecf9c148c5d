"""Checks that an archive was built from this journal; continuing with another would mix histories.

The journal may have been deleted while the archive was kept, or the wrong one configured. A journal
shorter than the archived offset is a different journal. A longer one must hold, at the offset of
the last archived event it still has, an event with the archive's number and time.
"""

from __future__ import annotations

import msgspec

from accord.core.model.errors import AccordError
from accord.journal.events import decode_event
from accord.journal.reader import Extent
from accord.journal.record import Batch
from accord.pipeline.journal_readers import JournalReader
from accord.pipeline.manifest import Snapshot
from accord.pipeline.tables import EVENTS, FileEntry


class JournalMismatchError(AccordError):
    """Archive and journal do not belong together."""

    def __init__(self, *, node: str, journal: str, archived: int, problem: str) -> None:
        super().__init__(
            f"the archive has records of {node!r} up to offset {archived}, but the journal"
            f" {journal} {problem}: it is another journal. Give the archive the journal it was"
            " made from, or begin another archive (pipeline.archive)"
        )


def check_extent(extent: Extent, journal: str, archived: int, node: str) -> None:
    if extent.next_offset < archived:
        problem = f"ends at {extent.next_offset}"
        raise JournalMismatchError(node=node, journal=journal, archived=archived, problem=problem)


def check_same_journal(reader: JournalReader, journal: str, snapshot: Snapshot, node: str) -> None:
    """Raise JournalMismatchError if the archive can't have been built from this journal."""
    archived = snapshot.archived.get(node, 0)
    extent = reader.extent()
    check_extent(extent, journal, archived, node)
    events = [file for file in snapshot.files if (file.table, file.node) == (EVENTS, node)]
    last = max(events, key=lambda file: file.last_offset, default=None)
    if last is None or last.last_offset < extent.first_offset:
        return
    if problem := _difference(reader, last):
        raise JournalMismatchError(node=node, journal=journal, archived=archived, problem=problem)


def _difference(reader: JournalReader, file: FileEntry) -> str:
    """How the record that should be the last of this file differs, if it does."""
    for found in reader.read(file.last_offset, max_records=1):
        if not isinstance(found, Batch):
            return ""  # retired since, or damaged: no evidence
        record = found.records()[0]
        try:
            event = decode_event(record)
        except msgspec.DecodeError:
            return "" if file.unread else f"has no event at offset {file.last_offset}"
        is_numbered = file.first_number <= event.number <= file.last_number
        is_timely = file.first_ms <= event.received_ms <= file.last_ms
        if not (is_numbered and is_timely):
            return f"has another event at offset {file.last_offset}"
    return ""
