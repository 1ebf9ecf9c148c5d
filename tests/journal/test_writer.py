from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from accord.journal.disk import OsDisk
from accord.journal.errors import JournalError, LockedError
from accord.journal.faults import FaultDisk, FaultFile
from accord.journal.options import JournalOptions
from accord.journal.retention import Retention
from accord.journal.segment_log import SegmentLog
from accord.journal.writer import AppendRefused, Journal
from tests.journal.helpers import numbered, records_in

BY_HAND = JournalOptions(is_threaded=False)
WAIT_S = 30.0


class Slow(FaultDisk):
    """A disk whose syncs wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()

    def sink(self, name: str) -> FaultFile:
        return self._slow(super().sink(name))

    def create(self, name: str) -> FaultFile:
        return self._slow(super().create(name))

    def _slow(self, file: FaultFile) -> FaultFile:
        sync = file.sync

        def wait() -> None:
            self.at_gate.set()
            self.gate.wait(WAIT_S)
            sync()

        file.sync = wait  # type: ignore[method-assign]
        return file


def test_appended_records_are_committed_and_told(tmp_path: Path) -> None:
    told: list[int] = []
    threads: set[str] = set()

    def on_commit(offset: int) -> None:
        told.append(offset)
        threads.add(threading.current_thread().name)

    journal = Journal.open(tmp_path, on_commit=on_commit)
    assert journal.append([b"a", b"b"]) == 2
    assert journal.append([b"c"]) == 3
    assert journal.flush() == 3
    status = journal.status()
    assert (status.next_offset, status.committed_offset, status.waiting_bytes) == (3, 3, 0)
    assert (status.segments, status.first_offset, status.last_error) == (1, 0, "")
    assert status.bytes == (tmp_path / "0000000000000000.seg").stat().st_size
    journal.close()
    assert told[-1] == 3
    assert sorted(told) == told
    assert threads == {"journal"}
    assert records_in(OsDisk(tmp_path)) == [b"a", b"b", b"c"]
    journal = Journal.open(tmp_path)
    assert journal.append([b"d"]) == 4
    journal.close()
    journal.close()
    assert records_in(OsDisk(tmp_path), 3) == [b"d"]


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    with pytest.raises(LockedError, match="is being written by process"):
        Journal.open(tmp_path)
    journal.close()
    Journal.open(tmp_path).close()


def test_what_comes_in_during_a_sync_is_the_next_commit() -> None:
    disk = Slow()
    told: list[int] = []
    journal = Journal.open(disk, on_commit=told.append)
    journal.append([b"0"])
    journal.flush(WAIT_S)
    disk.gate.clear()
    disk.at_gate.clear()
    journal.append([b"1"])
    assert disk.at_gate.wait(WAIT_S)
    for number in range(2, 50):
        journal.append([b"%d" % number])
    disk.gate.set()
    journal.flush(WAIT_S)
    journal.close()
    assert told == [1, 2, 50]
    assert journal.status().commits == 3


def test_a_full_backlog_refuses_and_takes_again() -> None:
    disk = Slow()
    journal = Journal.open(disk, JournalOptions(backlog_bytes=10_000))
    disk.gate.clear()
    taken = 0
    while not isinstance(refused := journal.append([b"x" * 936]), AppendRefused):
        taken += 1
    assert taken == 10
    assert refused == AppendRefused("disk too slow for the publication rate", 10_000, 10_000)
    assert journal.next_offset == 10
    disk.gate.set()
    journal.flush(WAIT_S)
    assert journal.append([b"y"]) == 11
    journal.close()
    assert records_in(disk) == [b"x" * 936] * 10 + [b"y"]


def test_many_small_records_fill_the_backlog_too() -> None:
    journal = Journal.open(FaultDisk(), JournalOptions(backlog_bytes=1_000, is_threaded=False))
    assert journal.append([b""]) == 1
    assert isinstance(journal.append([b""] * 16), AppendRefused)


def test_what_is_larger_than_the_backlog_waits_alone() -> None:
    journal = Journal.open(FaultDisk(), JournalOptions(backlog_bytes=1_000, is_threaded=False))
    assert journal.append([b"x" * 2_000]) == 1
    assert isinstance(journal.append([b"y"]), AppendRefused)
    journal.work()
    assert journal.append([b"y"]) == 2


def test_a_record_beyond_all_bounds_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.journal.writer.MAX_RECORD", 100)
    journal = Journal.open(FaultDisk(), BY_HAND)
    with pytest.raises(JournalError, match="a record of more than 100 bytes"):
        journal.append([b"x", bytes(101)])
    assert journal.append([bytes(60), bytes(60)]) == 2


def test_a_full_disk_is_told_once_and_tried_again() -> None:
    disk = FaultDisk(capacity=300)
    failures: list[JournalError] = []
    options = JournalOptions(retry_first_ms=1, retry_last_ms=2)
    journal = Journal.open(disk, options, on_failure=failures.append)
    journal.append([b"a" * 100])
    journal.flush(WAIT_S)
    journal.append([b"b" * 200])
    with pytest.raises(JournalError, match="No space left on device") as full:
        journal.flush(0.05)
    assert not full.value.is_final
    assert journal.status().is_failing
    assert not journal.status().is_failed
    disk.capacity = None
    assert journal.flush(WAIT_S) == 2
    status = journal.status()
    assert not status.is_failing
    assert "No space left on device; resumes when there is space" in status.last_error
    assert len(failures) == 1
    journal.close()
    assert records_in(disk) == [b"a" * 100, b"b" * 200]


def test_pauses_grow_up_to_a_limit() -> None:
    disk = FaultDisk()
    options = JournalOptions(retry_first_ms=10, retry_last_ms=50, is_threaded=False)
    journal = Journal.open(disk, options)
    disk.fail("create", errno.ENOSPC, times=8)  # two for each attempt
    journal.append([b"a"])
    assert [journal.work() for _ in range(5)] == [10, 20, 40, 50, 0]
    disk.fail("append", errno.ENOSPC)
    journal.append([b"b"])
    assert [journal.work() for _ in range(2)] == [10, 0]
    assert records_in(disk) == [b"a", b"b"]


def test_what_a_reader_lets_go_of_makes_room_on_a_full_disk() -> None:
    disk = FaultDisk(capacity=450)
    mark = disk.create("archive.reader")
    mark.append([b"0"])
    retention = Retention(max_bytes=250)
    options = JournalOptions(segment_bytes=1, retention=retention, is_threaded=False)
    journal = Journal.open(disk, options, clock=lambda: 0)
    for number in range(4):
        journal.append([b"%d" % number * 60])
        journal.work()
        journal.work()
    assert journal.status().committed_offset == 3
    assert journal.status().is_failing
    mark.overwrite(b"1")
    assert journal.work() > 0
    assert journal.work() == 0
    assert journal.status().committed_offset == 4
    assert journal.status().retired.records == 1


def test_closing_on_a_full_disk_says_what_is_lost() -> None:
    disk = FaultDisk()
    journal = Journal.open(disk, JournalOptions(retry_first_ms=60_000, retry_last_ms=60_000))
    disk.fail("create", errno.ENOSPC, times=1_000)
    journal.append([b"a", b"b"])
    with pytest.raises(JournalError, match=r"closed without the last 2 records: .*No space"):
        journal.close()
    with pytest.raises(JournalError):
        journal.flush()
    Journal.open(disk).close()


def test_a_failed_disk_ends_the_journal_and_nobody_waits() -> None:
    disk = FaultDisk()
    failures: list[JournalError] = []
    told: list[int] = []
    journal = Journal.open(disk, on_commit=told.append, on_failure=failures.append)
    journal.append([b"a"])
    journal.flush(WAIT_S)
    disk.fail("sync", errno.EIO, times=2)
    journal.append([b"b"])
    waiting = journal.retire()
    with pytest.raises(JournalError, match="Input/output error") as failed:
        journal.flush(WAIT_S)
    assert failed.value.is_final
    with pytest.raises(JournalError, match="Input/output error"):
        waiting.result(WAIT_S)
    refused = journal.append([b"c"])
    assert isinstance(refused, AppendRefused)
    assert "Input/output error" in refused.why
    with pytest.raises(JournalError, match="Input/output error"):
        journal.retire().result(WAIT_S)
    assert journal.status().is_failed
    assert (told, failures) == ([1], [failed.value])
    with pytest.raises(JournalError, match="closed without the last 1 records"):
        journal.close()
    assert records_in(disk.crash()) == [b"a"]


def test_a_sync_that_failed_once_is_told_and_made_good() -> None:
    disk = FaultDisk()
    failures: list[JournalError] = []
    told: list[int] = []
    journal = Journal.open(disk, BY_HAND, on_commit=told.append, on_failure=failures.append)
    journal.append([b"a"])
    journal.work()
    disk.fail("sync", errno.EIO)
    journal.append([b"b"])
    journal.work()
    assert told == [1, 2]
    assert [error.is_final for error in failures] == [False]
    assert records_in(disk.crash()) == [b"a", b"b"]


def test_the_same_incident_is_told_once_in_a_while() -> None:
    now_ms = 0
    disk = FaultDisk()
    failures: list[JournalError] = []
    journal = Journal.open(disk, BY_HAND, on_failure=failures.append, clock=lambda: now_ms)
    disk.fail("overwrite", errno.EIO, times=9)
    for now_ms in (0, 1, 4_999, 5_000, 5_001):  # noqa: B007
        journal.append([b"a"])
        journal.work()
    assert len(failures) == 2


@pytest.mark.parametrize("which", ["on_commit", "on_failure"])
def test_a_callback_that_raises_does_not_end_the_writer(which: str) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("the loop is closed")

    disk = FaultDisk()
    callbacks: dict[str, Callable[[object], None]] = {which: broken}
    journal = Journal.open(disk, BY_HAND, **callbacks)  # type: ignore[arg-type]
    disk.fail("create", errno.ENOSPC, times=2)
    journal.append([b"a"])
    journal.work()
    journal.work()
    assert "the loop is closed" in journal.status().last_error
    assert records_in(disk) == [b"a"]


def test_a_mistake_in_the_writer_is_no_endless_wait() -> None:
    class Wrong(FaultDisk):
        def create(self, name: str) -> FaultFile:
            if name != "committed":
                raise ZeroDivisionError("oops")
            return super().create(name)

    journal = Journal.open(Wrong())
    journal.append([b"a"])
    with pytest.raises(JournalError, match=r"stopped: ZeroDivisionError\('oops'\)"):
        journal.flush(WAIT_S)
    with pytest.raises(JournalError):
        journal.close()


def test_a_job_begins_with_just_what_was_appended_before_it() -> None:
    disk = FaultDisk()
    journal = Journal.open(disk, BY_HAND)
    seen: list[int] = []

    def job(log: SegmentLog) -> Generator[None, None, str]:
        for _ in range(3):
            seen.append(log.committed)
            yield
        return "done"

    journal.append([b"a"])
    future = journal.run(job)
    cancelled = journal.run(job)
    assert cancelled.cancel()
    journal.append([b"b", b"c"])
    journal.work()
    journal.work()
    journal.work()
    assert seen == [1, 1, 1]
    journal.work()
    assert future.result(0) == "done"
    assert journal.status().committed_offset == 3


def test_a_job_that_fails_fails_alone() -> None:
    journal = Journal.open(FaultDisk(), BY_HAND)

    def job(log: SegmentLog) -> Generator[None, None, None]:
        yield
        raise ValueError("bad record")

    future = journal.run(job)
    journal.append([b"a"])
    journal.flush()
    journal.work()
    with pytest.raises(ValueError, match="bad record"):
        future.result(0)
    assert "bad record" in journal.status().last_error
    journal.append([b"b"])
    assert journal.flush() == 2


def test_closing_ends_jobs() -> None:
    journal = Journal.open(FaultDisk())
    is_ended = threading.Event()

    def job(log: SegmentLog) -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            is_ended.set()

    future = journal.run(job)
    journal.append([b"a"])
    journal.flush(WAIT_S)
    journal.close()
    assert is_ended.is_set()
    for ended in (future, journal.run(job)):
        with pytest.raises(JournalError, match="closed"):
            ended.result(0)
    assert isinstance(journal.append([b"b"]), AppendRefused)


def test_retention_runs_by_itself() -> None:
    now_ms = 0
    disk = FaultDisk()
    options = JournalOptions(
        segment_bytes=1, retention=Retention(max_age_ms=1_000), is_threaded=False
    )
    journal = Journal.open(disk, options, clock=lambda: now_ms)
    for now_ms in range(0, 3_000, 500):  # noqa: B007
        journal.append([b"x"])
        journal.work()
    assert journal.status().first_offset == 3
    now_ms = 20_000
    journal.work()
    now_ms = 40_000
    journal.work()
    status = journal.status()
    assert (status.first_offset, status.retired.records, status.segments) == (6, 6, 1)


def test_retiring_on_request() -> None:
    journal = Journal.open(FaultDisk(), JournalOptions(segment_bytes=1))
    for number in range(4):
        journal.append(numbered(number, number + 1))
        journal.flush(WAIT_S)
    assert journal.retire(3).result(WAIT_S).records == 3
    assert journal.status().first_offset == 3
    journal.close()


def test_acknowledging_on_an_event_loop(tmp_path: Path) -> None:
    """As the node does it: each publisher waits until its own records are durable."""

    async def conversation() -> int:
        loop = asyncio.get_running_loop()
        committed = 0
        is_further = asyncio.Condition()

        async def advance(offset: int) -> None:
            nonlocal committed
            async with is_further:
                committed = offset
                is_further.notify_all()

        tasks: set[asyncio.Task[None]] = set()

        def arrived(offset: int) -> None:
            task = loop.create_task(advance(offset))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        journal = Journal.open(
            tmp_path, on_commit=lambda offset: loop.call_soon_threadsafe(arrived, offset)
        )

        async def publish(number: int) -> None:
            offset = journal.append([b"%d" % number])
            assert isinstance(offset, int)
            async with is_further:
                await is_further.wait_for(lambda: committed >= offset)

        await asyncio.gather(*(publish(number) for number in range(200)))
        journal.close()
        return committed

    assert asyncio.run(conversation()) == 200
    assert sorted(map(int, records_in(OsDisk(tmp_path)))) == list(range(200))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"segment_bytes": 0}, "segment_bytes: expected a positive number, got 0"),
        ({"batch_bytes": 1 << 30}, "batch_bytes: expected at most"),
    ],
)
def test_options_are_checked(options: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        JournalOptions(**options)  # type: ignore[arg-type]
