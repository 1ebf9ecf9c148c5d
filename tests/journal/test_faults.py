"""The fake forgets what a real disk may forget, and nothing else."""

from __future__ import annotations

import errno

import pytest

from accord.journal.errors import LockedError
from accord.journal.faults import Crash, FaultDisk


def nothing(_: int) -> int:
    return 0


def everything(limit: int) -> int:
    return limit


def content(disk: FaultDisk, name: str) -> bytes:
    return disk.source(name).read(0, 1 << 20)


def with_file(disk: FaultDisk) -> FaultDisk:
    sink = disk.create("a")
    sink.append([b"one"])
    sink.sync()
    disk.sync_names()
    return disk


def test_what_was_synced_is_there_after_a_crash() -> None:
    disk = with_file(FaultDisk(nothing))
    disk.sink("a").append([b" two"])
    disk.create("b")
    assert content(disk, "a") == b"one two"
    found = disk.crash()
    assert found.names() == ["a"]
    assert content(found, "a") == b"one"


def test_what_was_not_synced_may_be_there_too() -> None:
    disk = with_file(FaultDisk(everything))
    disk.sink("a").append([b" two"])
    disk.create("b")
    found = disk.crash()
    assert found.names() == ["a", "b"]
    assert content(found, "a") == b"one two"


def test_a_name_is_not_durable_by_syncing_the_file() -> None:
    disk = FaultDisk(nothing)
    disk.create("a").sync()
    assert disk.crash().names() == []


def test_blocks_survive_one_by_one() -> None:
    answers = iter([0, 1])
    disk = FaultDisk(lambda _: next(answers))
    sink = disk.create("a")
    disk.sync_names()
    sink.append([b"x" * 600])
    assert content(disk.crash(), "a") == bytes(512) + b"x" * 88


def test_renames_are_all_or_nothing() -> None:
    for choose, names in ((nothing, ["a"]), (everything, ["b"])):
        disk = with_file(FaultDisk(choose))
        disk.rename("a", "b")
        assert disk.names() == ["b"]
        found = disk.crash()
        assert found.names() == names
        assert content(found, names[0]) == b"one"


def test_removal_and_cutting_wait_as_well() -> None:
    disk = with_file(FaultDisk(nothing))
    disk.sink("a").truncate(1)
    disk.remove("a")
    assert disk.names() == []
    assert content(disk.crash(), "a") == b"one"


def test_after_a_failed_sync_another_one_proves_nothing() -> None:
    disk = with_file(FaultDisk(nothing))
    sink = disk.sink("a")
    sink.append([b" two"])
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        sink.sync()
    sink.sync()
    assert content(disk, "a") == b"one two"
    assert content(disk.crash(), "a") == b"one"


def test_a_full_disk_takes_what_fits() -> None:
    disk = FaultDisk(capacity=5)
    sink = disk.create("a")
    sink.append([b"123"])
    with pytest.raises(OSError, match="No space"):
        sink.append([b"456"])
    assert content(disk, "a") == b"12345"


def test_a_crash_is_for_good() -> None:
    disk = with_file(FaultDisk(nothing))
    disk.crash_at = disk.operations
    sink = disk.sink("a")
    for _ in range(2):
        with pytest.raises(Crash):
            sink.append([b" two"])
    assert content(disk.crash(), "a") == b"one"


def test_only_one_writer() -> None:
    disk = FaultDisk()
    disk.lock()
    with pytest.raises(LockedError):
        disk.lock()
    disk.crash().lock()
