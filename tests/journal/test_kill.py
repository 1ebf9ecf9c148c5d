"""On real files, with a process that is really killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

from accord.journal.disk import OsDisk
from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.journal.writer import Journal
from tests.journal.helpers import records_in

CHILD = Path(__file__).parent / "child.py"


def write_until_killed(directory: Path, first: int, commits: int) -> int:
    """Start a writer, read along while it writes, kill it; returns what it said last."""
    command = [sys.executable, str(CHILD), str(directory), str(first)]
    reader = Reader(directory)
    offset = committed = first
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(commits):
            line = child.stdout.readline()
            assert line, "the writer ended by itself"
            committed = int(line)
            for found in reader.read(offset):
                assert isinstance(found, Batch), found
                assert found.first_offset == offset
                check(found.records(), offset)
                offset = found.end_offset
            assert offset >= committed  # what is acknowledged can be read
        child.kill()
        for line in child.stdout.read().split(b"\n")[:-1]:
            committed = int(line)
    return max(committed, offset)


def check(records: list[bytes], offset: int) -> None:
    numbers = [int(record.split(b":")[0]) for record in records]
    assert numbers == list(range(offset, offset + len(records)))


def test_nothing_committed_is_lost_by_killing_the_writer(tmp_path: Path) -> None:
    random = Random(1)  # noqa: S311
    offset = 0
    for _ in range(6):
        committed = write_until_killed(tmp_path, offset, random.randint(1, 40))
        journal = Journal.open(tmp_path)
        offset = journal.next_offset
        assert offset >= committed
        assert journal.status().recovery.damaged == ()
        journal.close()
        check(records_in(OsDisk(tmp_path)), 0)
    assert offset > 1_000
