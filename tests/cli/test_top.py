"""`accord top`, against the API over a fake ledger."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from rich.console import Console

from accord.cli.top import draw_top
from accord.core.monitoring.top import LedgerStatus, Management, NodeLoad, Top
from tests.cli.ledger_server import run, serving
from tests.cli.test_terminal import ENVIRONMENT
from tests.cli.watching import watch
from tests.fake_ledger import FakeLedger, busy_node

PROGRAM = "from tests.cli.ledger_server import commands; commands(prog_name='accord')"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(FakeLedger()) as url:
        yield url


def shown(top: Top, width: int, height: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width).print(draw_top(top, width=width, height=height))
    return output.getvalue().splitlines()


def words(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


class TestScreen:
    @pytest.mark.parametrize(("width", "height", "rows"), [(80, 24, 2), (80, 40, 5), (120, 24, 5)])
    def test_fits(self, width: int, height: int, rows: int) -> None:
        lines = shown(busy_node(channels=60, clients=60), width, height)
        assert height - 2 <= len(lines) <= height
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert "\x1b" not in text
        assert "weighted fair · shaping on · 12 policies (version 7)" in text
        assert "800 kbit/s in all, 2 Mbit/s each" in text
        assert text.count("patrol-") >= rows
        assert text.count("region/") >= rows

    def test_what_it_says(self) -> None:
        lines = words(shown(busy_node(channels=1, clients=1), 120, 40))
        assert lines[0] == "alpha up 3 h 25 min · cpu 43 % · 82 MB · 40 clients · 12 tasks waiting"
        assert lines[1] == (
            "in 1,234/s 1.8 Mbit/s · out 5,678/s 799 kbit/s · queues 3.0 MB · shed 3.2/s"
        )
        assert lines[3] == "the ledger missed 3 events"
        assert lines[5:8] == [
            "importance waiting bytes tasks half waited 95 % waited",
            "6 – – 2 – –",
            "3 30 3.7 KB – 21.6 ms 180 ms",
        ]
        assert lines[9].startswith(
            "channel (1 of 3) in/s out/s kbit/s latency 95 % shaped/s lost/s"
        )
        assert lines[10].endswith("10 1,234 80 12.3 ms 812 ms 2 0.5 – 0.5 –")
        assert lines[13] == "patrol-0 ann 3 299 300 41.0 ms 100.0 KB – 2,000 7"

    def test_a_node_that_has_done_nothing(self) -> None:
        top = Top(
            name="alpha",
            version="1",
            taken_ms=0,
            uptime_ms=0,
            load=NodeLoad(),
            management=Management(),
            bins=(),
            channels=(),
            channels_total=0,
            clients=(),
            clients_total=0,
            ledger=LedgerStatus(is_on=False),
        )
        lines = words(shown(top, 80, 24))
        assert lines[0] == "alpha up 0.0 s · cpu 0 % · 0 MB · 0 clients"
        assert lines[2:4] == ["shaping off · 0 policies · no limits", "the ledger is off"]

    def test_a_tiny_terminal_still_shows_some_lines(self) -> None:
        text = "\n".join(shown(busy_node(channels=9, clients=9), 80, 5))
        assert "region/0" in text
        assert "patrol-0" in text


class TestCommand:
    def test_once(self, url: str) -> None:
        heard = run(url, "top", "--once")
        assert heard.exit_code == 0, heard.stderr
        assert heard.stdout.startswith("alpha  up 3 h 25 min")
        assert "patrol-2" in heard.stdout

    def test_json(self, url: str) -> None:
        heard = run(url, "top", "--once", "--json")
        fields = json.loads(heard.stdout)
        assert msgspec.convert(fields, Top) == busy_node(channels=3, clients=3)

    def test_nobody_there(self, dead_url: str) -> None:
        heard = run(dead_url.replace("mqtt", "http"), "top", "--once")
        assert heard.exit_code == 2
        assert "no node answers" in heard.stderr

    def test_a_node_that_has_no_such_thing(self, url: str) -> None:
        heard = run(f"{url}/elsewhere", "top", "--once")
        assert heard.exit_code == 1
        assert "no GET /elsewhere/api/v1/top; check the address" in heard.stderr

    def test_bad_interval(self, url: str) -> None:
        assert "--every: expected a duration" in run(url, "top", "-i", "x").stderr


def test_through_a_pipe(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "top", "-i", "10ms", "--url", url, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert json.loads(process.stdout.readline())["name"] == "alpha"
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 0


def test_on_a_terminal() -> None:
    """The picture comes again and again, stays when the node goes, and Ctrl-C ends it."""
    command = [sys.executable, "-c", PROGRAM, "top", "-i", "20ms"]
    _, after = watch(command, serving(FakeLedger()), "up 3 h 25 min", lines=24, columns=80)
    assert "weighted fair" in after
