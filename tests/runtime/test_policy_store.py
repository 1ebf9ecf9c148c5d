from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.journal.disk import OsDisk
from accord.journal.errors import LockedError
from accord.journal.faults import Crash, FaultDisk
from accord.operations.policies import Version
from accord.runtime.policy_store import PolicyStore, PolicyStoreError, UnknownVersionError


def version(number: int, what: str = "") -> Version:
    return Version(version=number, changed_ms=number * 1_000, who="ann", what=what)


def text(number: int) -> str:
    return f'strategy = "{number}"\n' * 100


def fill(store: PolicyStore, *numbers: int) -> PolicyStore:
    for number in numbers:
        store.write(version(number), text(number))
    return store


def newest(disk: FaultDisk) -> int:
    found = PolicyStore(disk).newest()
    if found is None:
        return 0
    assert found[1] == text(found[0].version)
    return found[0].version


def test_versions_survive(tmp_path: Path) -> None:
    store = PolicyStore(OsDisk(tmp_path / "policies"))
    assert store.newest() is None
    assert store.history() == []
    store.write(version(1, "día"), "a = 1\n", source="abc")
    store.write(version(2), "a = 2\n")
    store.close()
    names = [path.name for path in sorted((tmp_path / "policies").glob("*.toml"))]
    assert names == ["0000000001.toml", "0000000002.toml"]

    store = PolicyStore(OsDisk(tmp_path / "policies"))
    assert store.newest() == (version(2), "a = 2\n")
    assert store.history() == [version(2), version(1, "día")]
    assert store.read(1) == "a = 1\n"
    assert (store.source, store.last_number) == ("abc", 2)
    store.close()


def test_the_folder_belongs_to_one_node(tmp_path: Path) -> None:
    store = PolicyStore(OsDisk(tmp_path))
    with pytest.raises(LockedError):
        PolicyStore(OsDisk(tmp_path))
    store.close()
    PolicyStore(OsDisk(tmp_path)).close()


@pytest.mark.parametrize("disk", [FaultDisk, lambda: None])
def test_only_the_last_versions_are_kept(disk: Callable[[], FaultDisk | None]) -> None:
    store = fill(PolicyStore(disk(), kept=3), *range(1, 8))
    assert [each.version for each in store.history()] == [7, 6, 5]
    assert store.read(5) == text(5)
    with pytest.raises(UnknownVersionError, match="no version 4 of the policies; kept are 5 to 7"):
        store.read(4)


def test_without_a_disk_it_remembers() -> None:
    store = fill(PolicyStore(), 1, 2)
    assert store.newest() == (version(2), text(2))
    assert store.location == "in memory"
    store.close()


@pytest.mark.parametrize("position", [0, 30, 90, 1_000])
def test_a_damaged_version_is_passed_over_and_its_number_not_used_again(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultDisk()
    fill(PolicyStore(disk), 1, 2)
    disk.damage("0000000002.toml", position)
    disk.kill()
    store = PolicyStore(disk)
    assert store.newest() == (version(1), text(1))
    assert store.last_number == 2
    assert "policy version: skipped" in caplog.text
    fill(store, 3)
    assert [each.version for each in store.history()] == [3, 1]


@pytest.mark.parametrize("size", [0, 10, 150, 1_500])
def test_a_version_cut_short_is_passed_over(tmp_path: Path, size: int) -> None:
    fill(PolicyStore(OsDisk(tmp_path)), 1, 2).close()
    file = tmp_path / "0000000002.toml"
    file.write_bytes(file.read_bytes()[:size])
    store = PolicyStore(OsDisk(tmp_path))
    assert store.newest() == (version(1), text(1))
    store.close()


def test_what_could_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.runtime.policy_store.MAX_BYTES", 10_000)
    disk = FaultDisk()
    store = fill(PolicyStore(disk), 1)
    with pytest.raises(PolicyStoreError, match="more than can be kept"):
        store.write(version(2), "#" * 9_000)
    assert store.history() == [version(1)]
    disk.kill()
    assert newest(disk) == 1


def test_a_version_under_another_number_is_none(tmp_path: Path) -> None:
    fill(PolicyStore(OsDisk(tmp_path)), 1).close()
    (tmp_path / "0000000001.toml").rename(tmp_path / "0000000005.toml")
    store = PolicyStore(OsDisk(tmp_path))
    assert store.newest() is None
    store.close()


@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_a_crash_leaves_the_last_version_written_or_the_one_under_way(
    random: Random, crash_at: int
) -> None:
    disk = FaultDisk(lambda most: random.randint(0, most))
    disk.crash_at = crash_at
    written = 0
    with suppress(Crash):
        store = PolicyStore(disk, kept=2)
        for number in range(1, 6):
            store.write(version(number), text(number))
            written = number
    assert newest(disk.crash()) in (written, written + 1)


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_names"])
def test_what_could_not_be_written_is_not_there(operation: str) -> None:
    disk = FaultDisk(lambda most: most)
    store = fill(PolicyStore(disk), 1)
    disk.fail(operation, errno.ENOSPC)
    with pytest.raises(PolicyStoreError, match="version 2 can't be written: no space left"):
        fill(store, 2)
    assert [each.version for each in store.history()] == [1]
    assert newest(disk.crash()) == 1
    fill(store, 2)
    assert newest(disk.crash()) == 2


def test_an_old_file_that_stays_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultDisk()
    store = fill(PolicyStore(disk, kept=1), 1)
    disk.fail("remove", errno.EIO)
    fill(store, 2)
    assert "old policy version: not removed" in caplog.text
    fill(store, 3)
    assert disk.names() == ["0000000003.toml"]
