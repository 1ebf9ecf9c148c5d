"""An archive on an object store: a real server of its API, on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pyarrow as pa
import pytest
from tests.pipeline.archives import NODE, archive_slices, new_file, read, slice_job
from tests.pipeline.journals import kept, ledger_record, records, write_journal

from accord.pipeline.delta_log import Archive, DeltaLogError, JournalPart, now_ms
from accord.pipeline.journal_sink import commit_batch, write_slice
from accord.pipeline.maintenance import (
    Compaction,
    compact,
    expire,
    remove_payloads,
    remove_unread,
)
from accord.pipeline.tables import TablesError, day_end_ms

BUCKET = "bucket"
DAY_END_MS = day_end_ms("2025-11-16")
_ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    log = tmp_path_factory.mktemp("store") / "output.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        with pytest.MonkeyPatch.context() as environment:
            url = _address(process, log)
            for name, value in {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
                "NO_PROXY": "127.0.0.1",
            }.items():
                environment.setenv(name, value)
            httpx.put(f"{url}/{BUCKET}").raise_for_status()
            yield
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it says that it listens."""
    while process.poll() is None:
        if found := re.search(r"Running on (http://[0-9.:]+)\n", log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def archive(store: None, request: pytest.FixtureRequest) -> Archive:
    return Archive(f"s3://{BUCKET}/{request.node.name}", [NODE])


def test_a_journal_is_archived(archive: Archive, tmp_path: Path) -> None:
    commits = [[*records(n, n + 50), ledger_record(n, 3)] for n in range(0, 200, 50)]
    write_journal(tmp_path / "journal", commits)
    archive_slices(tmp_path, 50, 120, 204, archive=archive, declared={"altitude_m": "integer"})
    rows = read(archive, archive.events)
    assert [row["number"] for row in rows] == list(range(200))
    assert [row["altitude_m"] for row in rows] == list(range(200))
    assert len(read(archive, archive.ledger)) == 12
    again = Archive(archive.place, [NODE])
    assert again.archived(NODE) == 204
    snapshot = again.events.snapshot()
    found = pa.table(snapshot.engine.execute("SELECT count(*) AS n FROM events").read_all())
    assert found["n"].to_pylist() == [200]
    done = write_slice(slice_job(tmp_path, 120, 204, archive=archive))
    assert commit_batch([done], again) is None


def test_files_merge_and_days_expire(archive: Archive, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [[*records(0, 40, size=50), b"what?"]])
    archive_slices(tmp_path, 10, 20, 30, 41, archive=archive, large_bytes=52)
    rows = read(archive, archive.events)
    refs = [row["payload_ref"] for row in rows if row["payload_ref"]]
    assert len(refs) == 40
    assert archive.storage.read_payload(refs[7]) == kept(7, size=50).payload
    snapshot = archive.events.snapshot()
    job = Compaction(
        archive=archive.place, table="events", columns=snapshot.columns, files=snapshot.files
    )
    done = compact(job)
    assert done is not None
    archive.events.replace(snapshot.files, [done.file])
    assert read(archive, archive.events) == rows
    with pytest.raises(DeltaLogError, match="not part of it any more"):
        archive.events.replace(snapshot.files, [done.file])
    assert archive.events.vacuum() == 0  # queries may be reading them
    assert all(archive.storage.exists(f"events/{each.path}") for each in snapshot.files)
    assert expire(archive, DAY_END_MS) == 1
    assert read(archive, archive.events) == []
    assert remove_payloads(archive, DAY_END_MS) == 1
    with pytest.raises(TablesError, match="not kept any more"):
        archive.storage.read_payload(refs[7])
    assert archive.storage.exists(f"_unread/{NODE}-40")
    remove_unread(archive, now_ms() + 60_000)
    assert not archive.storage.exists(f"_unread/{NODE}-40")


def test_writers_at_the_same_time_keep_every_commit(archive: Archive) -> None:
    nodes = [f"n{number}" for number in range(4)]
    place = archive.place
    failures: list[BaseException] = []

    def work(node: str) -> None:
        try:
            table = Archive(place, nodes).events
            for number in range(8):
                file = new_file(f"{node}-{number}", node=node)
                assert table.append(
                    [JournalPart(node=node, first=number, end=number + 1, files=[file])]
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    snapshot = Archive(place, nodes).events.snapshot()
    assert snapshot.archived == dict.fromkeys(nodes, 8)
    assert len(snapshot.files) == 32


def test_a_store_that_does_not_answer_is_told(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_RETRIES", "0")
    with pytest.raises(DeltaLogError, match=f"table {archive.place}/events"):
        Archive(archive.place, [NODE]).events.snapshot()


WRITER = """
import sys
from pathlib import Path
from tests.pipeline.archives import slice_job, NODE
from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_sink import commit_batch, write_slice
archive = Archive(sys.argv[1], [NODE])
first, end = archive.archived(NODE), int(sys.argv[3])
while first < end:
    # As the source does: batches end where the table ahead ends.
    ahead = max(table.archived(NODE) for table in archive.tables)
    next_ = ahead if first < ahead else min(end, first + 7)
    print(first, flush=True)
    job = slice_job(Path(sys.argv[2]), first, next_, archive=archive)
    commit_batch([write_slice(job)], archive)
    first = next_
"""


@pytest.mark.timeout(300)
def test_a_killed_writer_loses_and_repeats_nothing(archive: Archive, tmp_path: Path) -> None:
    """Again and again, at any moment; also between the two tables."""
    commits = [[*records(n, n + 9), ledger_record(n, 2)] for n in range(0, 400, 10)]
    write_journal(tmp_path / "journal", commits)
    random = Random(5)  # noqa: S311
    for is_last in (*([False] * int(os.environ.get("ACCORD_KILLS", "3"))), True):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, archive.place, str(tmp_path), "400"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        with writer:
            assert writer.stdout is not None
            if not is_last:
                writer.stdout.readline()  # it is at work
                time.sleep(random.uniform(0, 0.6))
                writer.send_signal(signal.SIGKILL)
            else:
                writer.stdout.read()
    assert writer.returncode == 0
    events = Counter(row["offset"] for row in read(archive, archive.events))
    assert events == {n: 1 for n in range(400) if n % 10 != 9}
    ledger = Counter(row["offset"] for row in read(archive, archive.ledger))
    assert ledger == {n: 2 for n in range(400) if n % 10 == 9}
