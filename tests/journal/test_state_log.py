from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from accord.journal.disk import OsDisk
from accord.journal.errors import JournalError
from accord.journal.faults import Crash, FaultDisk
from accord.journal.options import JournalOptions
from accord.journal.record import SEGMENT_HEADER
from accord.journal.retention import Retention
from accord.journal.segments import Damaged
from accord.journal.state_log import StateLog

BY_HAND = JournalOptions(is_threaded=False, batch_bytes=100)
WAIT_S = 30.0


def reopened(disk: FaultDisk) -> list[bytes]:
    return StateLog.open(disk.crash(), BY_HAND)[1]


def test_changes_come_back_in_order(tmp_path: Path) -> None:
    state, records = StateLog.open(tmp_path)
    assert records == []
    assert state.append([b"a=1", b"b=1"]) == 2
    assert state.append([b"a=2"]) == 3
    assert state.flush() == 3
    state.close()
    state, records = StateLog.open(tmp_path)
    assert records == [b"a=1", b"b=1", b"a=2"]
    state.close()


def test_a_snapshot_replaces_all_before_and_nothing_after(tmp_path: Path) -> None:
    state, _ = StateLog.open(tmp_path)
    state.append([b"a=1", b"b=1", b"a=2"])
    done = state.compact(iter([b"a=2", b"b=1"]))
    state.append([b"b=2"])
    assert done.result(WAIT_S) == 2
    state.append([b"c=1"])
    state.close()
    names = [name for name in OsDisk(tmp_path).names() if name.startswith("0")]
    assert names == ["0000000000000003.seg", "0000000000000003.snap"]
    state, records = StateLog.open(tmp_path)
    assert records == [b"a=2", b"b=1", b"b=2", b"c=1"]
    assert state.append([b"d=1"]) == 6
    assert state.compact([]).result(WAIT_S) == 0
    state.close()
    state, records = StateLog.open(tmp_path)
    assert records == []
    assert state.append([b"e=1"]) == 7
    state.close()


def test_commits_go_on_while_a_snapshot_is_written() -> None:
    disk = FaultDisk()
    told: list[int] = []
    state, _ = StateLog.open(disk, BY_HAND, on_commit=told.append)
    state.append([b"old"])
    taken: list[int] = []

    def snapshot() -> Iterator[bytes]:
        for number in range(10):
            taken.append(number)
            yield b"%d" % number * 50

    done = state.compact(snapshot())
    assert taken == []  # the writer takes them, not we
    for number in range(5):
        state.append([b"new %d" % number])
        state.journal.work()
    assert told == [1, 3, 4, 5, 6]
    assert state.is_compacting
    assert reopened(disk) == [b"old", *(b"new %d" % number for number in range(5))]
    while not done.done():
        state.journal.work()
    expected = [b"%d" % n * 50 for n in range(10)] + [b"new %d" % n for n in range(5)]
    assert done.result() == 10
    assert reopened(disk) == expected


def test_one_compaction_at_a_time() -> None:
    state, _ = StateLog.open(FaultDisk(), BY_HAND)
    state.compact([b"a"])
    with pytest.raises(JournalError, match="is being compacted"):
        state.compact([b"b"])
    assert not state.is_worth_compacting(0)
    state.journal.work()
    state.journal.work()
    state.compact([b"b"])


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_compaction_leaves_the_log(operation: str, number: int) -> None:
    disk = FaultDisk()
    failures: list[JournalError] = []
    state, _ = StateLog.open(disk, BY_HAND, on_failure=failures.append)
    state.append([b"a=1"])
    state.flush()
    disk.fail(operation, number, times=2)
    done = state.compact([b"a=2" * 30, b"b=2" * 30])
    for _ in range(5):
        state.journal.work()
    with pytest.raises(JournalError, match="can't"):
        done.result(0)
    assert len(failures) == 1
    disk._faults.clear()
    state.append([b"b=1"])
    state.flush()
    assert not [name for name in disk.names() if name.endswith(".snap")]
    assert reopened(disk) == [b"a=1", b"b=1"]
    done = state.compact([b"c=1"])
    for _ in range(5):
        state.journal.work()
    assert done.result(0) == 1
    assert reopened(disk) == [b"c=1"]


def test_a_snapshot_that_raises_leaves_the_log() -> None:
    def snapshot() -> Iterator[bytes]:
        yield b"a" * 200
        yield b"b" * 200
        raise ValueError("bad session")

    disk = FaultDisk()
    state, _ = StateLog.open(disk, BY_HAND)
    state.append([b"a=1"])
    done = state.compact(snapshot())
    for _ in range(5):
        state.journal.work()
    with pytest.raises(ValueError, match="bad session"):
        done.result(0)
    assert not [name for name in disk.names() if "snap" in name]
    assert reopened(disk) == [b"a=1"]


def test_when_compaction_is_worth_it() -> None:
    state, _ = StateLog.open(FaultDisk(), BY_HAND)
    state.append([b"x" * 1_000] * 1_000)
    state.flush()
    assert not state.is_worth_compacting(0)  # a small log is left alone
    state.append([b"x" * 1_000] * 1_000)
    state.flush()
    assert state.is_worth_compacting(1_000_000)
    assert not state.is_worth_compacting(1_200_000)
    done = state.compact([b"x" * 1_000] * 1_500)
    while not done.done():
        state.journal.work()
    assert 1_500_000 < state.status().bytes < 1_700_000
    assert not state.is_worth_compacting(1_000_000)


def test_a_state_is_not_retired() -> None:
    with pytest.raises(ValueError, match="expected no limits"):
        StateLog.open(FaultDisk(), JournalOptions(retention=Retention(max_bytes=1)))


def compacted() -> FaultDisk:
    """A snapshot of three batches, and a change after it."""
    disk = FaultDisk()
    state, _ = StateLog.open(disk, BY_HAND)
    state.append([b"old"])
    done = state.compact([b"a" * 80, b"b" * 80, b"c" * 80])
    while not done.done():
        state.journal.work()
    state.append([b"new"])
    state.close()
    return disk


SNAPSHOT = "0000000000000001.snap"
BATCH = 32 + 4 + 80


def test_a_damaged_snapshot_is_told() -> None:
    disk = compacted()
    disk.damage(SNAPSHOT, SEGMENT_HEADER + BATCH + 40)
    state, records = StateLog.open(disk, BY_HAND)
    assert records == [b"a" * 80, b"c" * 80, b"new"]
    why = "checksum of a batch is wrong"
    assert state.damaged == (Damaged(SNAPSHOT, SEGMENT_HEADER + BATCH, why, 1, 2),)


def test_a_shortened_snapshot_is_told() -> None:
    disk = compacted()
    disk.sink(SNAPSHOT).truncate(SEGMENT_HEADER + BATCH)
    state, records = StateLog.open(disk, BY_HAND)
    assert records == [b"a" * 80, b"new"]
    assert [damaged.why for damaged in state.damaged] == ["snapshot without its end"]


def test_a_snapshot_without_header_is_set_aside() -> None:
    disk = compacted()
    disk.damage(SNAPSHOT, 0)
    state, records = StateLog.open(disk, BY_HAND)
    assert records == [b"new"]
    assert state.status().recovery.set_aside == (SNAPSHOT + ".bad",)
    assert [damaged.segment for damaged in state.damaged] == [SNAPSHOT]


def compact_and_die(disk: FaultDisk, crash_at: int | None) -> None:
    disk.crash_at = crash_at
    state, _ = StateLog.open(disk, BY_HAND)
    state.append([b"a=1", b"a=2"])
    done = state.compact([b"a=2", b"b=2"])
    with suppress(Crash):
        while not done.done():
            state.journal.work()
    disk.kill()


def test_what_a_snapshot_replaces_goes_only_after_its_name_is_durable() -> None:
    """The writer was killed between naming and syncing, and the next one crashes while opening."""
    rehearsal = FaultDisk()
    compact_and_die(rehearsal, None)
    naming = len(rehearsal.trace) - rehearsal.trace[::-1].index("rename")
    answers: list[int] = []
    found: list[list[bytes]] = []
    for crash_at in range(12):
        disk = FaultDisk(lambda limit: answers.pop() if answers else limit)
        compact_and_die(disk, naming)
        disk.crash_at = disk.operations + crash_at
        with suppress(Crash):
            StateLog.open(disk, BY_HAND)
        answers[:] = [0, 1]  # the second change that waits does not survive, the others do
        found.append(StateLog.open(disk.crash(), BY_HAND)[1])
    assert found[0] == [b"a=1", b"a=2"]
    assert found[-1] == [b"a=2", b"b=2"]
    assert all(records in (found[0], found[-1]) for records in found)
