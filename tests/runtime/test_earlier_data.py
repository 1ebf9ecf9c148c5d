"""A data directory and an archive that an earlier build wrote are opened as they are.

`data/directory-0.1.0.tar.gz` was written by a node that kept `plant/#`: 50 measurements, an alarm
that waits for the durable session of `crew-1`, a retained state, one policy, and its archive.
"""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import pytest
from deltalake import DeltaTable

from accord.core.broker.broker import Broker
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.limits import Limits
from accord.journal.disk import OsDisk
from accord.journal.events import decode_event
from accord.journal.ledger_records import EVENT, kind_of
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.operations.policies import Version
from accord.pipeline.conversion import convert
from accord.pipeline.delta_log import Archive
from accord.runtime.durability import EVENTS, Durability
from accord.runtime.initial_policies import load_initial_policies
from accord.runtime.policy_store import PolicyStore

WRITTEN_MS = 1_795_002_800_000  # a little after it was


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "data" / "directory-0.1.0.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_sessions_queues_and_retained_messages_are_there(directory: Path) -> None:
    async def scenario() -> None:
        broker = Broker(
            Limits(), now_ms=WRITTEN_MS, kept=["plant/#"], is_durable=True, new_client_id=str
        )
        durability = Durability(
            broker, directory, JournalOptions(), on_progress=lambda: None, now_ms=WRITTEN_MS
        )
        try:
            session = broker.sessions["crew-1"]
            assert list(session.subscriptions) == ["plant/alarm"]
            waiting = [each.message.payload for each in session.unacknowledged.values()]
            assert waiting == [b"overflow"]
            assert broker.retained.messages == 1
        finally:
            durability.close()

    asyncio.run(scenario())


def test_kept_events_are_there(directory: Path) -> None:
    found = Reader(directory / EVENTS).read(0)
    records = [each for item in found if isinstance(item, Batch) for each in item.records()]
    events = [decode_event(each) for each in records if kind_of(each) == EVENT]
    levels = [each.event().attributes["level"] for each in events if each.channel == "plant/pump"]
    assert levels == list(range(50))


def test_policies_are_there(directory: Path) -> None:
    store = PolicyStore(OsDisk(directory / "policies"))
    newest = store.newest()
    assert newest is not None
    version, text = newest
    assert version.version == 1
    assert [each.name for each in parse_policy_set(text).policies] == ["Alarms"]
    store.close()


def test_a_former_strategy_is_read_as_the_present_one() -> None:
    store = PolicyStore()
    store.write(Version(version=1), 'strategy = "first come"\n')
    assert load_initial_policies(store).strategy == "fifo"


def test_the_archive_is_there(directory: Path) -> None:
    """As Delta tables, which it gets at the first start, and with the same files."""
    files = set((directory / "archive").rglob("*.parquet"))  # some had been compacted
    archive = Archive(directory / "archive", ["vm"])
    assert convert(archive.storage) == 2
    assert set((directory / "archive").rglob("*.parquet")) == files
    levels = DeltaTable(str(directory / "archive" / "events")).to_pyarrow_table(
        columns=["offset", "number", "channel", "attributes"]
    )
    assert len(levels) == 52
    pump = [row for row in levels.sort_by("offset").to_pylist() if row["channel"] == "plant/pump"]
    assert [dict(row["attributes"])["level"]["integer"] for row in pump] == list(range(50))
    end = Reader(directory / EVENTS).extent().next_offset
    reached = [table.snapshot().archived for table in archive.tables]
    assert reached == [{"vm": end}] * 2
