from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accord.pipeline.manifest import (
    Already,
    Manifest,
    ManifestEntry,
    ManifestError,
    Snapshot,
    encode_entry,
)

from accord.pipeline import durable_files
from accord.pipeline import manifest as module
from accord.pipeline.tables import LOST, FileEntry

FOLDER = "events/day=2026-11-16/group=uav"


def file(archive: Path, name: str, **fields: Any) -> FileEntry:
    """A file that is there, of whatever content."""
    path = f"{FOLDER}/{name}.parquet"
    (archive / FOLDER).mkdir(parents=True, exist_ok=True)
    (archive / path).write_bytes(b"x")
    known: dict[str, Any] = {
        "table": "events", "path": path, "day": "2026-11-16", "group": "uav", "rows": 1,
        "bytes": 1, "node": "here", "first_offset": 0, "last_offset": 0,
    }  # fmt: skip
    return FileEntry(**known | fields)


def lost(first: int, end: int) -> FileEntry:
    return FileEntry(
        table=LOST, path="", day="", rows=end - first, bytes=0, node="here",
        first_offset=first, last_offset=end - 1,
    )  # fmt: skip


def names(snapshot: Snapshot | Already) -> list[str]:
    assert isinstance(snapshot, Snapshot)
    return [Path(each.path).stem for each in snapshot.files]


def test_without_an_archive_there_is_nothing(tmp_path: Path) -> None:
    snapshot = Manifest(tmp_path / "none").snapshot()
    assert (snapshot.version, snapshot.files, snapshot.archived) == (0, (), {})
    assert not (tmp_path / "none").exists()


def test_files_come_and_go_in_one_step(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path, clock=lambda: 77)
    a, b, c = (file(tmp_path, name, stats={"x": (1, 2.5)}) for name in "abc")
    assert names(manifest.commit(added=[a, b], moved={"here": (0, 20)})) == ["a", "b"]
    assert names(manifest.commit(added=[c], removed=[a.path, b.path])) == ["c"]
    read = Manifest(tmp_path).snapshot()
    assert read == manifest.snapshot()
    assert read.files == (c,)
    assert read.archived == {"here": 20}
    assert read.removed == {a.path: 77, b.path: 77}


def test_a_batch_is_committed_once(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    first = file(tmp_path, "first")
    manifest.commit(added=[first], moved={"here": (0, 20)})
    again = Manifest(tmp_path).commit(added=[file(tmp_path, "again")], moved={"here": (0, 20)})
    assert isinstance(again, Already)
    assert manifest.snapshot().files == again.snapshot.files == (first,)
    part = manifest.commit(added=[file(tmp_path, "part")], moved={"here": (5, 15)})
    assert isinstance(part, Already)


@pytest.mark.parametrize("moved", [(21, 30), (19, 30), (30, 40), (40, 30), (-1, 30)])
def test_a_batch_that_does_not_follow_is_refused(tmp_path: Path, moved: tuple[int, int]) -> None:
    manifest = Manifest(tmp_path)
    manifest.commit(moved={"here": (0, 20)})
    with pytest.raises(ManifestError, match=r"of 'here' do not follow .* ends at 20"):
        manifest.commit(added=[file(tmp_path, "a")], moved={"here": moved})
    assert manifest.snapshot().files == ()


def test_half_a_batch_is_refused(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    manifest.commit(moved={"here": (0, 20)})
    with pytest.raises(ManifestError, match="of a batch only here had been committed"):
        manifest.commit(moved={"here": (0, 20), "there": (0, 5)})


def test_what_a_journal_has_lost_is_counted(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    manifest.commit(moved={"here": (100, 120)}, lost=True)
    manifest.commit(added=[lost(125, 130)], moved={"here": (120, 140)})
    manifest.commit(moved={"there": (0, 1)}, lost=True)
    snapshot = Manifest(tmp_path).snapshot()
    assert snapshot.archived == {"here": 140, "there": 1}
    assert snapshot.lost == {"here": 105}
    assert snapshot.files == ()


def test_files_must_be_as_the_change_says(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    a = file(tmp_path, "a")
    manifest.commit(added=[a])
    with pytest.raises(ManifestError, match=r"a\.parquet is part of the tables already"):
        manifest.commit(added=[a])
    with pytest.raises(ManifestError, match="none is not part of the tables"):
        manifest.commit(removed=["none"])
    b = file(tmp_path, "b")
    (tmp_path / b.path).unlink()
    with pytest.raises(ManifestError, match=r"b\.parquet is not there"):
        manifest.commit(added=[b])
    assert manifest.snapshot().version == 1


def test_others_see_what_is_new(tmp_path: Path) -> None:
    one, other = Manifest(tmp_path), Manifest(tmp_path)
    for number in range(5):
        one.commit(added=[file(tmp_path, str(number))], moved={"here": (number, number + 1)})
        assert other.snapshot() == one.snapshot()
        assert other.snapshot() is other.snapshot()


def test_checkpoints_stand_for_all_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 5)
    late_ms = 10**15  # so that everything is older than the grace period
    manifest, behind = Manifest(tmp_path, clock=lambda: late_ms), Manifest(tmp_path)
    behind.snapshot()
    for number in range(23):
        a = file(tmp_path, str(number))
        gone = [f"{FOLDER}/{number - 1}.parquet"] if number else []
        manifest.commit(added=[a], removed=gone, moved={"here": (number, number + 1)})
    entries = sorted(os.listdir(tmp_path / "_manifest"))
    checkpoints = [f"{number:016d}.checkpoint.json" for number in (15, 20)]
    changes = [f"{number:016d}.json" for number in range(16, 24)]
    assert entries == sorted([*checkpoints, *changes, "lock"])
    for reader in (Manifest(tmp_path), behind):
        snapshot = reader.snapshot()
        assert names(snapshot) == ["22"]
        assert (snapshot.version, snapshot.archived) == (23, {"here": 23})


def test_old_entries_stay_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 5)
    manifest = Manifest(tmp_path)
    for number in range(20):
        manifest.commit(moved={"here": (number, number + 1)})
    assert len(os.listdir(tmp_path / "_manifest")) == 20 + 4 + 1


def test_one_who_is_a_little_behind_goes_on_from_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the entries that would bring it up to date are gone already."""
    manifest, behind = Manifest(tmp_path), Manifest(tmp_path)
    for number in range(4):
        manifest.commit(moved={"here": (number, number + 1)})
        if number == 1:
            behind.snapshot()
    manifest._write_checkpoint()
    (tmp_path / "_manifest" / f"{3:016d}.json").unlink()
    assert behind.snapshot() == manifest.snapshot()


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"crc32":1,"entry":{"at_ms":1}}', b"\xff\xfe"])
def test_a_damaged_entry_is_an_error(tmp_path: Path, damage: bytes) -> None:
    Manifest(tmp_path).commit(added=[file(tmp_path, "a")])
    path = tmp_path / "_manifest" / f"{1:016d}.json"
    path.write_bytes(damage)
    with pytest.raises(ManifestError, match=rf"{path}: (is damaged|its checksum)"):
        Manifest(tmp_path).snapshot()


def test_a_changed_entry_is_an_error(tmp_path: Path) -> None:
    Manifest(tmp_path).commit(added=[file(tmp_path, "a")])
    path = tmp_path / "_manifest" / f"{1:016d}.json"
    path.write_bytes(path.read_bytes().replace(b'"rows":1', b'"rows":2'))
    with pytest.raises(ManifestError, match="its checksum is wrong"):
        Manifest(tmp_path).snapshot()


def test_a_missing_entry_is_an_error(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    for number in range(3):
        manifest.commit(moved={"here": (number, number + 1)})
    (tmp_path / "_manifest" / f"{2:016d}.json").unlink()
    with pytest.raises(ManifestError, match=r"0000000000000002\.json: is missing"):
        Manifest(tmp_path).snapshot()
    assert manifest.snapshot().archived == {"here": 3}
    (tmp_path / "_manifest" / f"{3:016d}.json").unlink()
    with pytest.raises(ManifestError, match="ends at 1, but 3 had been read"):
        manifest.snapshot()


def test_one_who_is_faster_is_taken_into_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one who does not hold the lock, as on a disk of several machines."""
    manifest = Manifest(tmp_path)
    create = durable_files.create
    theirs = [file(tmp_path, "theirs")]

    def late(path: Path, data: bytes) -> bool:
        if theirs:
            entry = ManifestEntry(at_ms=1, added=(theirs.pop(),), archived={"there": 9})
            assert create(path, encode_entry(entry))
        return create(path, data)

    monkeypatch.setattr(module, "create", late)
    mine = manifest.commit(added=[file(tmp_path, "mine")], moved={"here": (0, 4)})
    assert isinstance(mine, Snapshot)
    assert names(mine) == ["theirs", "mine"]
    assert (mine.version, mine.archived) == (2, {"there": 9, "here": 4})


def test_many_commit_at_once(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def work(node: str) -> None:
        manifest = Manifest(tmp_path)
        try:
            for number in range(10):
                mine = file(tmp_path, f"{node}-{number}", node=node)
                gone = [f"{FOLDER}/{node}-{number - 1}.parquet"] if number % 3 else []
                manifest.commit(added=[mine], removed=gone, moved={node: (number, number + 1)})
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    snapshot = Manifest(tmp_path).snapshot()
    assert snapshot.version == 40
    assert snapshot.archived == dict.fromkeys("abcd", 10)
    wanted = {f"{node}-{number}" for node in "abcd" for number in (2, 5, 8, 9)}
    assert set(names(snapshot)) == wanted


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Run `act` in a process that dies just before its so-manieth call of the disk."""
    child = os.fork()
    if child == 0:
        left = [step]

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*args: Any, **options: Any) -> Any:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1
                return call(*args, **options)

            return counted

        for name in ("open", "write", "fsync", "link", "unlink", "close", "replace"):
            setattr(os, name, dying(getattr(os, name)))
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_a_kill_at_any_moment_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 2)  # checkpoints are cut short as well
    kills = 0
    for step in range(60):
        archive = tmp_path / str(step)
        before = file(archive, "before")
        Manifest(archive).commit(added=[before], moved={"here": (0, 10)})
        after = file(archive, "after")

        def act(archive: Path = archive, after: FileEntry = after) -> None:
            Manifest(archive).commit(
                added=[after], removed=[f"{FOLDER}/before.parquet"], moved={"here": (10, 20)}
            )

        if not killed_at(step, act):
            break
        kills += 1
        left = Manifest(archive).snapshot()
        assert (names(left), left.archived["here"]) in ((["before"], 10), (["after"], 20))
        Manifest(archive).commit(added=[after], removed=[before.path], moved={"here": (10, 20)})
        done = Manifest(archive).snapshot()
        assert (names(done), done.archived) == (["after"], {"here": 20})
        Manifest(archive).commit(moved={"here": (20, 30)})
    assert kills > 10
    assert step < 59
