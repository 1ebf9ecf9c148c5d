"""`accord query`, with an archive that the test plays."""

from __future__ import annotations

import io
import json
import signal
import sys
from datetime import datetime
from pathlib import Path

import pyarrow.ipc
import pyarrow.parquet
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from accord.cli import query as query_runner
from accord.cli.main import app
from accord.client.query import QueryStats
from tests.client.fake_archive import FIRST_MS, FakeArchive


class Asking:
    """The command, and the archive that it finds."""

    def __init__(self) -> None:
        self.archive = FakeArchive(250)

    def __call__(self, *arguments: str) -> Result:
        environment = {"COLUMNS": None, "TZ": "UTC"}
        return CliRunner().invoke(app, ["query", *arguments], env=environment)

    def asked(self) -> dict[str, object]:
        found: dict[str, object] = self.archive.asked[0]
        return found


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Asking:
    asking = Asking()
    monkeypatch.setattr("accord.client.session.transport_with", lambda _: asking.archive.open)
    return asking


class TestOutput:
    def test_for_people(self, asking: Asking) -> None:
        found = asking("uav/#", "--limit", "2")
        assert (found.exit_code, found.stderr) == (0, "")
        first, second = (line.split("  ") for line in found.stdout.splitlines())
        assert [part.strip() for part in first[1:] if part] == [
            *("7S", "uav/imagery", "n=249", "payload")
        ]
        assert second[1] == "7R"
        moment = datetime.fromtimestamp(FIRST_MS / 1000 + 249).astimezone()
        assert first[0] == f"{moment:%Y-%m-%d %H:%M:%S}.000"

    def test_json_is_what_predicates_read(self, asking: Asking) -> None:
        found = asking("uav/#", "--format", "json", "--oldest", "--limit", "3")
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        assert lines[0] == {
            "channel": "uav/imagery",
            "attributes": {"n": 0},
            "payload": "payload",
            "published_ms": FIRST_MS,
            "received_ms": FIRST_MS,
            "id": "0",
            "source": "camera",
        }
        arguments = ["predicate", "match", "n >= 1", "-", "--json"]
        matched = CliRunner().invoke(app, arguments, input=found.stdout)
        assert matched.stdout.splitlines() == found.stdout.splitlines()[1:]

    @pytest.mark.parametrize("ending", ["json", "jsonl"])
    def test_json_in_a_file(self, asking: Asking, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"found.{ending}"
        assert asking("uav/#", "-o", str(path)).exit_code == 0
        assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [*range(250)]
        assert list(tmp_path.iterdir()) == [path]

    def test_parquet(self, asking: Asking, tmp_path: Path) -> None:
        path = tmp_path / "found.parquet"
        found = asking("uav/#", "--oldest", "-o", str(path))
        assert (found.exit_code, found.stdout) == (0, "")
        table = pyarrow.parquet.read_table(path)
        assert table.column("n").to_pylist() == list(range(250))
        assert pyarrow.parquet.read_metadata(path).num_row_groups == 3

    def test_arrow(self, asking: Asking, tmp_path: Path) -> None:
        path = tmp_path / "found.arrow"
        assert asking("uav/#", "--limit", "205", "-o", str(path)).exit_code == 0
        with pyarrow.ipc.open_stream(path.read_bytes()) as stream:
            assert stream.read_all()["n"].to_pylist() == list(range(205))

    def test_nothing_in_a_file(self, asking: Asking, tmp_path: Path) -> None:
        asking.archive.size = 0
        found = asking("uav/#", "-o", str(tmp_path / "x.csv"))
        assert (found.exit_code, found.stdout) == (1, "")
        assert found.stderr.startswith("nothing found: uav/# since -24h")

    def test_nothing(self, asking: Asking) -> None:
        asking.archive.size = 0
        found = asking("uav/#", "--where", "n > 3")
        assert (found.exit_code, found.stdout) == (1, "")
        assert found.stderr.splitlines() == [
            "nothing found: uav/# where n > 3 since -24h",
            "is the channel kept ([[keep]] in accord.toml)? or look further back with --since",
        ]

    def test_nothing_because_of_an_unknown_attribute(self, asking: Asking) -> None:
        asking.archive.size = 0
        asking.archive.hint = "none of the newest 9 events has an attribute 'n'; known: m"
        found = asking("uav/#", "--where", "n > 3")
        assert found.stderr.splitlines()[1] == asking.archive.hint
        (compared,) = asking.archive.compared
        assert (compared["where"], compared["since"]) == ("n > 3", "-24h")


class TestWhatIsAsked:
    def test_by_default_the_newest_of_a_day(self, asking: Asking) -> None:
        asking("uav/#")
        expected = {"do": "find", "channel": "uav/#", "since": "-24h", "limit": 100}
        assert asking.asked() == expected

    def test_all_options(self, asking: Asking) -> None:
        asking("uav/#", "-w", "n > 1", "--since", "-2h", "--until", "-1h", "--oldest", "-n", "500")
        asked = asking.asked()
        assert (asked["where"], asked["since"], asked["until"]) == ("n > 1", "-2h", "-1h")
        assert (asked["order"], asked["limit"]) == ("oldest", 500)

    def test_how_it_is_read(self, asking: Asking) -> None:
        found = asking("uav/#", "--engine", "spark", "--as-of", "17", "--explain", "-n", "1")
        asked = asking.asked()
        assert (asked["engine"], asked["as_of"]) == ("spark", "17")
        assert found.stderr.splitlines() == [
            "engine datafusion: 2 files opened (1.0 KB), 5 skipped; 1 record not archived yet; 3 ms"
        ]

    def test_a_file_has_all(self, asking: Asking, tmp_path: Path) -> None:
        asking("uav/#", "-w", "n > 1", "--oldest", "-o", str(tmp_path / "x.csv"))
        first, second, _ = asking.archive.asked
        expected = {"do": "export", "channel": "uav/#", "where": "n > 1", "since": "-24h"}
        assert first == {**expected, "order": "oldest", "format": "csv"}
        assert second["cursor"] == "100"

    def test_an_event_of_any_age(self, asking: Asking) -> None:
        asking("--event", "1-2")
        asked = asking.asked()
        assert (asked["channel"], asked["event"]) == ("#", "12")
        assert "since" not in asked


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["a/#/b"], "error: CHANNEL: expected '#' as the last level only"),
            (["a", "--since", "yesterday"], "error: --since: expected a time such as -24h"),
            (["a", "--until", "x"], "error: --until: expected a time"),
            (["a", "--as-of", "v1"], "error: --as-of: expected a time"),
            (["a", "--event", "!"], "error: --event: expected letters and digits"),
            (["a", "--format", "parquet"], "error: --format: expected --output FILE"),
            (["a", "--format", "csv"], "error: --format: expected --output FILE"),
            (["a", "-f", "table", "-o", "x"], "error: --output: expected --format json"),
            (["a", "-o", "x.txt"], "error: --output: expected --format, or a name that ends"),
            (["a", "-o", "missing/x.json"], "error: --output: missing/x.json: no such file"),
            (["a", "-w", "n >> 1"], "error: unexpected '>'"),
        ],
    )
    def test_shown_before_anybody_is_asked(
        self, asking: Asking, arguments: list[str], problem: str
    ) -> None:
        found = asking(*arguments)
        assert found.exit_code == 2
        assert found.stderr.startswith(problem)
        assert asking.archive.asked == []

    def test_two_conditions(self, asking: Asking) -> None:
        assert asking("a", "-w", "n", "--xpath", "/n").exit_code == 2

    def test_what_the_node_says(self, asking: Asking, tmp_path: Path) -> None:
        asking.archive.failure = {"ok": False, "detail": "the data pipeline is off: --no-pipeline"}
        found = asking("a", "-o", str(tmp_path / "x.json"))
        assert found.exit_code == 2
        assert found.stderr == "error: the data pipeline is off: --no-pipeline\n"
        assert list(tmp_path.iterdir()) == []

    def test_no_pyarrow(
        self, asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        found = asking("a", "-o", str(tmp_path / "x.parquet"))
        assert found.exit_code == 2
        assert "pip install 'accord[pipeline]'" in found.stderr


def test_ctrl_c_leaves_no_file(asking: Asking, tmp_path: Path) -> None:
    archive = asking.archive
    archive.holds_after = 1
    archive.interrupt = lambda: signal.raise_signal(signal.SIGINT)
    found = asking("a", "-o", str(tmp_path / "x.json"))
    assert found.exit_code == 1
    assert "interrupted after 100 events" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_tells_the_node(asking: Asking) -> None:
    archive = asking.archive
    archive.holds_after = 1
    archive.interrupt = lambda: signal.raise_signal(signal.SIGINT)
    found = asking("a", "--limit", "1000", "--json")
    assert found.exit_code == 1
    assert "interrupted after 200 events" in found.stderr
    assert [each["do"] for each in archive.asked] == ["find", "next", "cancel"]


class TestProgress:
    def test_on_a_terminal(self) -> None:
        sink = io.StringIO()
        console = Console(file=sink, force_terminal=True, width=100, color_system=None)
        with query_runner._bar(console, 100) as show:
            show(QueryStats(events=57, pages=1, files=3, files_skipped=12, tail=4, missing=1))
        assert "57 of at most 100 events" in sink.getvalue()
        assert "3 files read, 12 skipped, 4 not archived yet, 1 dropped" in sink.getvalue()

    def test_nowhere_else(self) -> None:
        sink = io.StringIO()
        with query_runner._bar(Console(file=sink), 100) as show:
            show(QueryStats(events=57))
        assert sink.getvalue() == ""


def test_a_wish_in_words() -> None:
    text = query_runner.question_text("a", xpath="/b", until="now", event="7")
    assert text == "a where /b with id 7 until now"
