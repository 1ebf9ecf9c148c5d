from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accord.journal.disk import OsDisk, OsFile
from accord.journal.errors import JournalError, LockedError
from accord.journal.faults import FaultDisk


def test_both_disks_do_the_same(tmp_path: Path) -> None:
    def conversation(disk: OsDisk | FaultDisk) -> list[object]:
        disk.lock()
        sink = disk.create("a")
        sink.append([b"one", b"", b" two"])
        sink.truncate(3)
        sink.append([b" three"])
        sink.sync()
        sink.overwrite(b"O")
        sink.close()
        again = disk.sink("a")
        again.append([b"!"])
        again.close()
        disk.create("b").close()
        disk.rename("a", "b")
        disk.create("c").close()
        disk.remove("c")
        disk.sync_names()
        source = disk.source("b")
        read = [source.read(0, 100), source.read(4, 5), source.read(100, 5), disk.size("b")]
        source.close()
        disk.unlock()
        return [*read, [name for name in disk.names() if name != "lock"]]

    expected = [b"One three!", b"three", b"", 10, ["b"]]
    assert conversation(OsDisk(tmp_path / "new" / "folder")) == expected
    assert conversation(FaultDisk()) == expected


@pytest.mark.parametrize("make", [OsDisk, lambda _: FaultDisk()])
def test_both_disks_refuse_the_same(tmp_path: Path, make: type[OsDisk]) -> None:
    disk = make(tmp_path)
    disk.create("a").close()
    with pytest.raises(FileExistsError):
        disk.create("a")
    for call in (disk.source, disk.sink, disk.size, disk.remove):
        with pytest.raises(FileNotFoundError):
            call("b")


def test_the_lock_names_who_has_it(tmp_path: Path) -> None:
    code = (
        "import sys; from accord.journal.disk import OsDisk\n"
        "OsDisk(sys.argv[1]).lock(); print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(
            LockedError, match=f"is being written by process {other.pid}"
        ) as refused:
            OsDisk(tmp_path).lock()
        assert refused.value.holder == other.pid
        other.kill()
    OsDisk(tmp_path).lock()


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="file/journal: can't be opened: "):
        OsDisk(tmp_path / "file" / "journal").lock()


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    calls = 0

    def three_bytes(descriptor: int, parts: list[memoryview], offset: int) -> int:
        nonlocal calls
        calls += 1
        return real(descriptor, [b"".join(parts)[:3]], offset)

    monkeypatch.setattr(os, "pwritev", three_bytes)
    disk = OsDisk(tmp_path)
    sink = disk.create("a")
    sink.append([b"1234", b"5", b"678"])
    sink.close()
    assert calls == 3
    assert (tmp_path / "a").read_bytes() == b"12345678"


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"12345678")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 3), at))
    source: OsFile = OsDisk(tmp_path).source("a")
    assert source.read(0, 8) == b"12345678"
    assert source.read(1, 100) == b"2345678"
    source.close()
