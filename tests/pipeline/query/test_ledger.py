"""The outcomes of one event from the archive, as a search of the node's ledger finds them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.pipeline.asking import NODE, World, planner_of
from tests.pipeline.journals import ledger_record, write_journal

from accord.journal.ledger_records import (
    ArchivedEntry,
    LedgerQuery,
    LedgerSearch,
    decode_ledger,
)
from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_sink import SliceJob, commit_batch, write_slice
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.ledger import find_outcomes


def archived(world: World, *commits: bytes) -> Archive:
    """Each record in a file of its own."""
    archive = world.tables
    journal = write_journal(Path(world.journal + " of outcomes"), [[record] for record in commits])
    for at in range(len(commits)):
        job = SliceJob(
            node=NODE, journal=str(journal), first=at, next=at + 1, archive=archive.place
        )
        commit_batch([write_slice(job)], archive)
    return archive


def found(
    engine: ArchiveEngine, archive: Archive, number: int, most: int = 100
) -> list[ArchivedEntry]:
    body = find_outcomes(planner_of(engine), archive.ledger.snapshot(), NODE, number, most)
    return msgspec.msgpack.decode(body, type=list[ArchivedEntry])


def test_an_event_has_the_same_outcomes_as_in_the_ledger(
    engine: ArchiveEngine, world: World
) -> None:
    record = ledger_record(7, 20)
    archive = archived(world, record, ledger_record(5_000, 3))
    search = LedgerSearch(LedgerQuery(number=9), 100)
    search.scan(decode_ledger(record))
    rows = found(engine, archive, 9)
    assert [each.entry for each in rows] == search.entries
    assert [each.node for each in rows] == [NODE]
    assert found(engine, archive, 5_001)[0].entry.number == 5_001
    assert found(engine, archive, 4_000) == []
    assert found(engine, archive, 0) == []


def test_no_more_than_wanted(engine: ArchiveEngine, world: World) -> None:
    archive = archived(world, ledger_record(7, 5), ledger_record(7, 5))
    assert len(found(engine, archive, 9)) == 2
    assert len(found(engine, archive, 9, most=1)) == 1
