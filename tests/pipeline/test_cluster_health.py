"""Each trouble of a cluster is one sentence with its remedy."""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow as pa
import pytest

from accord.pipeline.cluster_health import FolderProblem, Signs, Worker, diagnose
from accord.pipeline.cluster_probes import FolderProbe, addresses, connection_problem

MASTER, CONNECT = "spark://head:7077", "sc://head:15002"
SMALL = Worker("w1", cores_free=1, memory_free_mb=300)
TAKEN = Worker("w2", cores_free=0, memory_free_mb=8_000)
ROOMY = Worker("w3", cores_free=2, memory_free_mb=2_048)
ARCHIVE = FolderProblem("w1", "archive", "/data/archive")


@pytest.mark.parametrize(
    ("place", "signs", "words"),
    [
        (MASTER, Signs(unreachable="Connection refused"), "accord spark master"),
        (CONNECT, Signs(unreachable="Connection refused"), "accord spark connect"),
        (MASTER, Signs(opening_s=13), "check that a Spark master, not its page, of the same"),
        (CONNECT, Signs(silent_s=9), "does not answer: if this lasts, restart it"),
        (CONNECT, Signs(opening_s=13), "check that a Spark Connect server, of the same"),
        (MASTER, Signs(stopped="Master removed our application: FAILED"), "ended the pipeline's"),
        (MASTER, Signs(idle_s=9, workers=()), "no workers: start some (accord spark worker spark"),
        (
            MASTER,
            Signs(idle_s=9, workers=(SMALL,), executor_mb=480),
            (
                "no worker of spark://head:7077 has 480 MB and 1 core free for an executor (at "
                "most 300 MB and 1 core, at w1): start larger workers (accord spark worker"
            ),
        ),
        (MASTER, Signs(idle_s=9, workers=(SMALL, TAKEN)), "8,000 MB and 0 cores, at w2"),
        (MASTER, Signs(idle_s=9, workers=(SMALL, ROOMY)), '"spark.driver.host" under'),
        ("yarn", Signs(idle_s=9, executor_cores=2), "workers with 1,024 MB and 2 cores free"),
        (
            MASTER,
            Signs(folders=(ARCHIVE,)),
            (
                "worker w1 does not see the archive /data/archive: put it on storage that all "
                "workers share under the same path (such as NFS), and name it with `archive` under"
            ),
        ),
        (
            MASTER,
            Signs(folders=(FolderProblem("w1", "journal", "/data/journal"),)),
            "with `data` under [node]",
        ),
        (
            MASTER,
            Signs(folders=(FolderProblem("w1", "archive", "/data/archive", "Permission denied"),)),
            "worker w1 can't use the archive /data/archive (Permission denied): let the user",
        ),
        (MASTER, Signs(failure="No module named 'accord'"), "PYSPARK_PYTHON"),
        (
            MASTER,
            Signs(failure="disk full"),
            "tasks fail on the cluster at spark://head:7077: disk",
        ),
    ],
)
def test_what_is_wrong(place: str, signs: Signs, words: str) -> None:
    assert words in diagnose(place, signs)


@pytest.mark.parametrize("signs", [Signs(), Signs(opening_s=5, idle_s=5, silent_s=5, workers=())])
def test_a_cluster_may_take_some_seconds(signs: Signs) -> None:
    assert diagnose(MASTER, signs) == ""


def test_the_first_cause_counts() -> None:
    signs = Signs(unreachable="Connection refused", idle_s=9, workers=(), folders=(ARCHIVE,))
    assert "can't be reached" in diagnose(MASTER, signs)


def test_where_spark_listens() -> None:
    assert addresses("spark://a:7077,b:7078") == [("a", 7077), ("b", 7078)]
    assert addresses("sc://a/;token=x") == [("a", 15002)]
    assert addresses("sc://a:1;x=y") == [("a", 1)]
    assert addresses("spark://[::1]:7077") == [("::1", 7077)]
    assert addresses("yarn") == addresses("") == addresses("local[2]") == []


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()
        with socket.create_server(("127.0.0.1", 0)) as other:
            gone = other.getsockname()
        assert connection_problem([gone, there]) == ""
        assert connection_problem([gone]) == "Connection refused"
        assert connection_problem([]) == ""


class TestFolderProbe:
    """What a task at a worker says of folders that the driver has marked."""

    def rows(self, archive: Path, journal: str = "") -> list[dict[str, str]]:
        probe = FolderProbe((("archive", str(archive)),), journal, "denver", "mine")
        return [
            row for batch in probe([pa.RecordBatch.from_pylist([{}])]) for row in batch.to_pylist()
        ]

    def mark(self, archive: Path, written: str = "mine") -> None:
        (archive / "_probe").mkdir(parents=True)
        (archive / "_probe" / "denver").write_text(written)

    def test_a_shared_folder(self, tmp_path: Path) -> None:
        self.mark(tmp_path)
        assert self.rows(tmp_path, str(tmp_path)) == []
        assert [each.name for each in (tmp_path / "_probe").iterdir()] == ["denver"]

    def test_another_folder(self, tmp_path: Path) -> None:
        (row,) = self.rows(tmp_path / "archive")
        assert (row["purpose"], row["problem"]) == ("archive", "")
        assert row["host"] == socket.gethostname()

    def test_a_folder_of_another_driver(self, tmp_path: Path) -> None:
        self.mark(tmp_path, "older")
        (row,) = self.rows(tmp_path)
        assert row["problem"] == ""

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "_probe").write_text("")
        (row,) = self.rows(tmp_path)
        assert row["problem"] == "Not a directory"

    def test_a_journal_that_is_not_there(self, tmp_path: Path) -> None:
        self.mark(tmp_path)
        (row,) = self.rows(tmp_path, str(tmp_path / "journal"))
        assert row["purpose"] == "journal"
