from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from accord.core.monitoring.ledger import DELIVERED, SHED, Ledger
from accord.core.monitoring.sightings import LINKS, Sightings
from accord.journal.ledger_records import LedgerQuery, LedgerResult
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.writer import AppendRefused, Journal
from accord.runtime.ledger_store import LedgerStore

FIRST = 1_763_000_000_000_000_000


def add(ledger: Ledger, number: int, destination: str = "bob", outcome: int = DELIVERED) -> None:
    ledger.add(
        FIRST + number, 1, "a", "ann", destination, outcome, 1_000, 1_000, 1_000 + number, 9, 3,
        "", "", 0,
    )  # fmt: skip


def search(store: LedgerStore, wanted: LedgerQuery, most: int = 100) -> LedgerResult:
    return asyncio.run(store.search(wanted, most, now_ms=9_000))


def numbers(answer: LedgerResult) -> list[int]:
    return [entry.number - FIRST for entry in answer.entries]


def test_memory_answers() -> None:
    ledger = Ledger()
    store = LedgerStore(ledger)
    store.drain(now_ms=1_000)
    assert store.status().reaches_back_ms is None
    add(ledger, 1)
    store.drain(now_ms=2_000)
    add(ledger, 2)
    add(ledger, 1, "slow", SHED)
    answer = search(store, LedgerQuery(number=FIRST + 1))
    assert [entry.destination for entry in answer.entries] == ["slow", "bob"]
    assert answer.is_complete
    assert numbers(search(store, LedgerQuery(), 2)) == [1, 2]
    status = store.status()
    assert (status.entries, status.missed, status.reaches_back_ms) == (3, 0, 2_000)


def test_what_is_taken_between_two_looks_is_not_older_than_it_is() -> None:
    ledger = Ledger()
    store = LedgerStore(ledger)
    add(ledger, 500)
    answer = asyncio.run(store.search(LedgerQuery(since_ms=1_400), 9, now_ms=1_100))
    assert numbers(answer) == [500]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.runtime.ledger_store._MAX_RECORDS", 3)
    ledger = Ledger()
    store = LedgerStore(ledger, keep=4)
    for number in range(0, 6, 2):
        add(ledger, number)
        add(ledger, number + 1)
        store.drain(now_ms=2_000)
    answer = search(store, LedgerQuery())
    assert numbers(answer) == [5, 4, 3, 2]
    for number in range(6, 10):
        add(ledger, number)
        store.drain(now_ms=2_000)
    assert numbers(search(store, LedgerQuery())) == [9, 8, 7]


def test_many_entries_are_searched_without_stopping_the_node() -> None:
    ledger = Ledger()
    store = LedgerStore(ledger)
    turns = 0

    async def main() -> LedgerResult:
        nonlocal turns

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        answer = await store.search(LedgerQuery(outcome=SHED), 9, now_ms=9_000)
        task.cancel()
        return answer

    for number in range(10_000):
        add(ledger, number)
        if ledger.is_due():
            store.drain(now_ms=9_000)
    assert asyncio.run(main()).entries == []
    assert turns >= 4


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.open(tmp_path, JournalOptions(is_threaded=False))


def test_the_journal_remembers_what_memory_does_not(journal: Journal, tmp_path: Path) -> None:
    def append(record: bytes) -> int | None:
        end = journal.append([record])
        return None if isinstance(end, AppendRefused) else end - 1

    ledger = Ledger()
    store = LedgerStore(ledger, append=append, journal=tmp_path, keep=2)
    for number in range(5):
        add(ledger, number)
        store.drain(now_ms=2_000 + number)
    journal.work()
    assert numbers(search(store, LedgerQuery(number=FIRST))) == [0]
    answer = search(store, LedgerQuery())
    assert numbers(answer) == [4, 3, 2, 1, 0]
    assert answer.is_complete
    assert answer.reaches_back_ms == 2_000
    assert numbers(search(store, LedgerQuery(), 2)) == [4, 3]
    journal.close()
    # Another run of the node finds it, too.
    again = LedgerStore(Ledger(), append=append, journal=tmp_path)
    assert numbers(search(again, LedgerQuery(number=FIRST + 3))) == [3]


def test_only_records_that_may_match_are_read(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the journal: the index knows where they are."""

    def append(record: bytes) -> int | None:
        end = journal.append([b"an event", record])
        return None if isinstance(end, AppendRefused) else end - 1

    read: list[int] = []
    find = Reader.read

    def counted(self: Reader, offset: int, **limits: int) -> object:
        read.append(offset)
        return find(self, offset, **limits)

    ledger = Ledger()
    store = LedgerStore(ledger, append=append, journal=tmp_path, keep=1)
    for number in range(50):
        add(ledger, number)
        store.drain(now_ms=2_000 + number)
    journal.work()
    monkeypatch.setattr(Reader, "read", counted)
    answer = search(store, LedgerQuery(number=FIRST + 20))
    assert numbers(answer) == [20]
    assert answer.has_older
    assert read == [41]
    read.clear()
    assert numbers(search(store, LedgerQuery(since_ms=9_000))) == []
    assert read == []
    assert numbers(search(store, LedgerQuery(), 3)) == [49, 48, 47]


def test_a_journal_that_refuses_is_counted() -> None:
    ledger = Ledger(bound=2)
    store = LedgerStore(ledger, append=lambda _: None)
    for number in range(3):
        add(ledger, number)
    store.drain(now_ms=2_000)
    assert store.status().missed == 3
    assert numbers(search(store, LedgerQuery())) == [1, 0]


def test_a_journal_that_is_not_there(tmp_path: Path) -> None:
    ledger = Ledger()
    store = LedgerStore(ledger, journal=tmp_path / "none")
    add(ledger, 1)
    answer = search(store, LedgerQuery())
    assert numbers(answer) == [1]
    assert not answer.is_complete


def test_too_many_askers_are_told_what_memory_knows(tmp_path: Path) -> None:
    ledger = Ledger()
    store = LedgerStore(ledger, journal=tmp_path)
    add(ledger, 1)

    async def main() -> list[LedgerResult]:
        asked = [store.search(LedgerQuery(), 9, now_ms=9_000) for _ in range(20)]
        return await asyncio.gather(*asked)

    assert [numbers(answer) for answer in asyncio.run(main())] == [[1]] * 20
    assert store._searches == 0


@pytest.mark.parametrize("keep", [10_000, 30])
def test_a_table_has_what_came_before_it_and_what_comes_after(keep: int) -> None:
    """Also if entries come while it is seeded, step by step."""

    async def run() -> None:
        ledger = Ledger()
        store = LedgerStore(ledger, keep=keep)
        for number in range(200):
            add(ledger, number, "bob" if number % 3 else "ann", SHED if number % 2 else DELIVERED)
            if number % 10 == 9:
                store.drain(now_ms=1_000 + number)
        table = store.follow_client("bob", now_ms=1_200)
        newest = store.follow_newest("#", "bob", now_ms=1_200)
        for number in range(200, 240):
            add(ledger, number)
            if number % 7 == 0:
                store.drain(now_ms=1_000 + number)
                await asyncio.sleep(0)
        await store.seed(table)
        await store.seed(newest)
        store.drain(now_ms=1_240)
        assert (table.is_seeded, store.seeded) == (True, 2)
        everything = await store.search(LedgerQuery(client="bob"), 10_000, now_ms=1_240)
        first_ms = table.since_ms(1_240)
        summary = table.summaries(1_240)["a"]
        if keep == 10_000:
            assert first_ms <= 1_000
            entries = everything.entries
            delivered = [each for each in entries if each.outcome == DELIVERED]
            assert summary.received == len(delivered)
            assert summary.dropped == len(entries) - len(delivered)
            found = [first_number + row[0] for first_number, _, row in newest.newest()]
            assert found == [each.number for each in entries]
        else:  # what memory no longer had is said to be missing
            assert first_ms > 1_100
            assert 40 <= summary.received + summary.dropped < 100

    asyncio.run(run())


def test_sightings_are_in_the_journal_alone() -> None:
    sightings, written = Sightings(), list[bytes]()

    def append(record: bytes) -> int:
        written.append(record)
        return len(written)

    store = LedgerStore(Ledger(), sightings=sightings, append=append)
    sightings.observe((LINKS, "denver", "boise"), True, now_ms=1_000)
    store.drain(now_ms=1_000)
    assert len(written) == 1
    assert numbers(search(store, LedgerQuery(channel="$accord/#"))) == []
