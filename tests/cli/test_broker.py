"""`accord broker`, as a process of its own: a session of Spark is one for a whole process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from accord.cli.main import app
from tests.pipeline.journals import records, write_journal

PREDICATES = """\
{"name": "high", "channel": "uav/#", "where": "altitude_m > 300 OR price = 0.1"}
{"name": "all"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "predicates.jsonl").write_text(PREDICATES)
    (tmp_path / "events").mkdir()
    _write(tmp_path / "events" / "1.json", {"channel": "uav/1", "altitude_m": 420})
    return tmp_path


def _write(path: Path, *events: dict[str, Any]) -> None:
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))


def _broker(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accord", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _lines(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=str)


def test_a_table_is_matched_to_json_lines(folder: Path) -> None:
    table = pa.table(
        {
            "channel": ["uav/1", "uav/2", "bus"],
            "altitude_m": [100, 420, 420],
            "price": pa.array([Decimal("0.10"), None, None], pa.decimal128(9, 2)),
        }
    )
    pq.write_table(table, folder / "table.parquet")
    done = _broker("table.parquet", "predicates.jsonl", "--columns", "channel")
    assert done.returncode == 0, done.stderr
    assert _lines(done.stdout) == [
        {"channel": "bus", "predicate": "all"},
        {"channel": "uav/1", "predicate": "all"},
        {"channel": "uav/1", "predicate": "high"},
        {"channel": "uav/2", "predicate": "all"},
        {"channel": "uav/2", "predicate": "high"},
    ]
    assert "5 matches in" in done.stderr


def test_a_journal_is_matched_to_parquet(folder: Path) -> None:
    write_journal(folder / "journal", [records(0, 400)])
    done = _broker("journal", "predicates.jsonl", "-o", "found.parquet", "--columns", "number")
    assert done.returncode == 0, done.stderr
    found = pq.read_table(folder / "found.parquet")
    assert found.schema.names == ["number", "predicate"]
    numbers = {
        name: {row["number"] for row in found.to_pylist() if row["predicate"] == name}
        for name in ("all", "high")
    }
    assert numbers == {"all": {*range(400)}, "high": {*range(301, 400)}}
    again = _broker("journal", "predicates.jsonl", "-o", "found.parquet")
    assert again.returncode == 2
    assert "--output: expected a new folder, found.parquet exists" in again.stderr


def test_a_delta_table_is_matched_in_its_latest_version(folder: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"channel": ["uav/1"], "altitude_m": [420], "day": ["2026-11-19"]})
    deltalake.write_deltalake("table", table, partition_by=["day"])
    later = pa.table({"channel": ["uav/2"], "altitude_m": [7], "day": ["2026-11-20"]})
    deltalake.write_deltalake("table", later, mode="overwrite")
    done = _broker("table", "predicates.jsonl", "--columns", "channel,day")
    assert _lines(done.stdout) == [
        {"channel": "uav/2", "day": "2026-11-20", "predicate": "all"},
    ]


def test_a_stream_resumes_where_it_ended(folder: Path) -> None:
    arguments = ("events", "predicates.jsonl", "--once", "--checkpoint", "progress")
    first = _broker(*arguments)
    assert first.returncode == 0, first.stderr
    assert [row["predicate"] for row in _lines(first.stdout)] == ["all", "high"]
    _write(folder / "events" / "2.json", {"channel": "bus", "altitude_m": 420})
    second = _broker(*arguments)
    assert _lines(second.stdout) == [{"channel": "bus", "altitude_m": 420, "predicate": "all"}]


def test_a_stream_goes_on_until_it_is_interrupted(folder: Path) -> None:
    command = [sys.executable, "-m", "accord", "broker", "events", "predicates.jsonl", "--stream"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert {json.loads(process.stdout.readline())["predicate"] for _ in "ab"} == {"all", "high"}
        _write(folder / "events" / "2.json", {"channel": "bus", "altitude_m": 7})
        assert json.loads(process.stdout.readline())["altitude_m"] == 7
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 0


def test_failures_of_spark_are_one_sentence(folder: Path) -> None:
    (folder / "broken.parquet").write_text("not parquet")
    done = _broker("broken.parquet", "predicates.jsonl")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "broken.parquet" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none", "predicates.jsonl"], "none: no such file or directory; check the path"),
        (["s3://bucket/events", "predicates.jsonl"], "--format: expected one of parquet, json,"),
        (["events", "none.jsonl"], "none.jsonl: no such file or directory; check the path"),
        (["events", "predicates.jsonl", "-f", "xml"], "--format: expected one of parquet, json,"),
        (["events", "predicates.jsonl", "-o", "x.txt"], "--output: expected a name ending in"),
        (["events", "predicates.jsonl", "--once"], "--once: expected --output or --checkpoint"),
        (["events", "predicates.jsonl", "--checkpoint", "x"], "--checkpoint: expected --stream"),
        (["events", "predicates.jsonl", "-f", "delta", "--stream"], "--stream: expected parquet,"),
        (["events", "predicates.jsonl", "--option", "x"], "--option: expected NAME=VALUE"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_found_before_spark_starts(arguments: list[str], problem: str) -> None:
    done = CliRunner().invoke(app, ["broker", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert problem in done.stderr


def test_a_mistake_in_a_predicate_has_its_line(folder: Path) -> None:
    (folder / "bad.jsonl").write_text('{"name": "a"}\n{"name": "b", "where": "x > "}\n')
    done = CliRunner().invoke(app, ["broker", "events", "bad.jsonl"], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "bad.jsonl:2: predicate 'b': the predicate ends too early" in done.stderr
