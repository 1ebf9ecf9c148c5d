from __future__ import annotations

import os
from pathlib import Path

import pytest
from accord.pipeline.housekeeping import expire, remove_orphans
from accord.pipeline.manifest import Manifest, ManifestError

from accord.pipeline.tables import FileEntry, day_end_ms

NOW_MS = 1_763_280_000_000
OLD_DAY, DAY = "2025-11-14", "2025-11-16"


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def put(archive: Path, path: str, *, at_ms: int = NOW_MS) -> None:
    (archive / path).parent.mkdir(parents=True, exist_ok=True)
    (archive / path).write_bytes(b"x")
    os.utime(archive / path, ns=(at_ms * 1_000_000,) * 2)


def file(archive: Path, name: str, day: str = DAY, *, table: str = "events") -> FileEntry:
    group = "/group=uav" if table == "events" else ""
    path = f"{table}/day={day}{group}/{name}.parquet"
    put(archive, path)
    return FileEntry(
        table=table, path=path, day=day, rows=1, bytes=1, node="here",
        first_offset=0, last_offset=0,
    )  # fmt: skip


def test_whole_days_expire(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    old = [file(tmp_path, "a", OLD_DAY), file(tmp_path, "b", OLD_DAY, table="ledger")]
    new = file(tmp_path, "c")
    manifest.commit(added=[*old, new])
    assert expire(manifest, day_end_ms(OLD_DAY) - 1) == 0
    assert expire(manifest, day_end_ms(OLD_DAY)) == 2
    assert manifest.snapshot().files == (new,)
    assert expire(manifest, day_end_ms(OLD_DAY)) == 0
    assert all((tmp_path / each.path).exists() for each in old)


def test_what_left_the_tables_can_be_read_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    manifest = Manifest(tmp_path, clock=clock)
    old, new = file(tmp_path, "a"), file(tmp_path, "b")
    manifest.commit(added=[old, new])
    clock.now_ms += 1_000_000
    manifest.commit(removed=[old.path])
    assert remove_orphans(manifest, clock.now_ms) == 0
    assert (tmp_path / old.path).exists()
    assert remove_orphans(manifest, clock.now_ms + 1) == 1
    assert not (tmp_path / old.path).exists()
    assert (tmp_path / new.path).exists()


def test_files_that_nobody_committed_go_when_they_are_old(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    kept = file(tmp_path, "kept")
    manifest.commit(added=[kept])
    orphan, unfinished = file(tmp_path, "orphan"), "_manifest/.tmp-123"
    put(tmp_path, unfinished)
    assert remove_orphans(manifest, NOW_MS) == 0
    assert remove_orphans(manifest, NOW_MS + 1) == 2
    assert not (tmp_path / orphan.path).exists()
    assert not (tmp_path / unfinished).exists()
    assert (tmp_path / kept.path).exists()
    assert Manifest(tmp_path).snapshot().files == (kept,)


def test_what_was_deleted_cannot_be_committed(tmp_path: Path) -> None:
    """A process that slept through the grace period."""
    manifest = Manifest(tmp_path)
    late = file(tmp_path, "late")
    remove_orphans(Manifest(tmp_path), NOW_MS + 1)
    with pytest.raises(ManifestError, match=r"late.parquet is not there"):
        manifest.commit(added=[late], moved={"here": (0, 1)})


def test_payloads_go_with_the_last_file_of_their_day(tmp_path: Path) -> None:
    clock = Clock()
    manifest = Manifest(tmp_path, clock=clock)
    payloads = [f"payloads/day={day}/here-1" for day in (OLD_DAY, DAY)]
    for path in payloads:
        put(tmp_path, path)
    manifest.commit(added=[file(tmp_path, "a", OLD_DAY), file(tmp_path, "b")])
    remove_orphans(manifest, NOW_MS + 1)
    assert all((tmp_path / path).exists() for path in payloads)
    clock.now_ms += 1_000_000
    expire(manifest, day_end_ms(OLD_DAY))
    remove_orphans(manifest, clock.now_ms)
    assert (tmp_path / payloads[0]).exists()
    remove_orphans(manifest, clock.now_ms + 1)
    assert [(tmp_path / path).exists() for path in payloads] == [False, True]


def test_empty_folders_go(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path)
    put(tmp_path, f"events/day={OLD_DAY}/group=uav/x.parquet")
    remove_orphans(manifest, NOW_MS + 1)
    folder = tmp_path / "events" / f"day={OLD_DAY}"
    assert list(folder.rglob("*.parquet")) == []
    for each in (folder / "group=uav", folder):
        if each.exists():
            os.utime(each, ns=(NOW_MS * 1_000_000,) * 2)
            remove_orphans(manifest, NOW_MS + 1)
    assert not folder.exists()
    assert (tmp_path / "events").exists()


def test_records_that_could_not_be_read_expire_by_their_age(tmp_path: Path) -> None:
    put(tmp_path, "unread/here-1", at_ms=NOW_MS)
    put(tmp_path, "unread/here-2", at_ms=NOW_MS + 5)
    expire(Manifest(tmp_path), NOW_MS + 1)
    assert os.listdir(tmp_path / "unread") == ["here-2"]
