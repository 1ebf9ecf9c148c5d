"""`accord pub` against a node."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accord.cli.pub import MAX_COMPLAINTS
from tests.brokers import HOST, start_accord
from tests.cli.conftest import Accord, RunningNode
from tests.cli.test_terminal import ACCORD


def kept(accord: Accord, channel: str) -> dict[str, Any]:
    """The event that was retained on `channel`."""
    heard = accord("sub", channel, "--count", "1", "--json")
    assert heard.exit_code == 0, heard.output
    fields: dict[str, Any] = json.loads(heard.stdout)
    del fields["published_ms"]
    return fields


class TestOutcome:
    def test_nobody_listens(self, accord: Accord, channel: str) -> None:
        heard = accord("pub", channel, "hello")
        assert heard.exit_code == 0
        words = f"acknowledged, but no one listens  {channel}  5 B  event "
        assert heard.stdout.startswith(words)

    def test_of_quality_0_nothing_is_known(self, accord: Accord, channel: str) -> None:
        assert accord("pub", channel, "día", "--qos", "0").stdout == f"sent  {channel}  4 B\n"

    def test_somebody_listens(self, accord: Accord, channel: str, node: RunningNode) -> None:
        command = [*ACCORD, "sub", channel, "--count", "1", "--raw", "--url", node.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as subscriber:
            while "no one" in (heard := accord("pub", channel, "hello").stdout):
                assert subscriber.poll() is None
            assert heard.startswith(f"acknowledged  {channel}  5 B  event ")
            assert subscriber.stdout is not None
            assert subscriber.stdout.read() == b"hello"

    def test_refused(self, accord: Accord) -> None:
        config = '[anonymous]\nallowed = true\nmay = { publish = ["open/#"], subscribe = ["#"] }\n'
        with start_accord(config=config) as broker:
            url = ("--url", f"mqtt://{HOST}:{broker.port}")
            assert accord("pub", "open/a", "x", *url).exit_code == 0
            one = accord("pub", "closed/a", "x", *url)
            assert one.exit_code == 1
            assert "refused the event on 'closed/a': not authorized" in one.stderr
            many = accord("pub", "closed/a", "x", "--count", "20", *url)
            assert many.exit_code == 1
            assert many.stderr.count("error:") == MAX_COMPLAINTS
            assert "0 events acknowledged" in many.stdout
            assert many.stdout.endswith("; 20 refused\n")


class TestEvent:
    def test_attributes_are_typed_by_their_form(self, accord: Accord, channel: str) -> None:
        pairs = ["altitude_m=420", "ratio=0.5", "urgent=true", "platform=UAV", "note=a=b", "none="]
        options = [text for pair in pairs for text in ("-a", pair)]
        options += ["-a", "taken=2026-03-14T07:12:30+01:00"]
        assert accord("pub", channel, "--retain", "x", *options).exit_code == 0
        assert kept(accord, channel)["attributes"] == {
            "altitude_m": 420,
            "ratio": 0.5,
            "urgent": True,
            "platform": "UAV",
            "note": "a=b",
            "none": "",
            "taken": {"timestamp": "2026-03-14T06:12:30Z"},
        }

    def test_everything_else(self, accord: Accord, channel: str, tmp_path: Path) -> None:
        xml = tmp_path / "report.xml"
        xml.write_text("<report><sighting>4</sighting></report>")
        options = ["--key", "raven-7", "--deadline-ms", "60000", "--metadata", str(xml)]
        assert accord("pub", channel, "--retain", "x", *options, "-q", "2").exit_code == 0
        assert kept(accord, channel) == {
            "channel": channel,
            "attributes": {},
            "payload": "x",
            "metadata": "<report><sighting>4</sighting></report>",
            "key": "raven-7",
            "deadline_ms": 60_000,
        }


class TestPayload:
    def test_none(self, accord: Accord, channel: str) -> None:
        assert accord("pub", channel, "--retain", "-a", "n=1").exit_code == 0
        # An empty payload takes back what was retained.
        assert accord("sub", channel, "--for", "200ms", "--count", "1").exit_code == 1

    def test_a_file(self, accord: Accord, channel: str, tmp_path: Path) -> None:
        path = tmp_path / "payload"
        path.write_bytes(b"\xff\x00\n")
        assert accord("pub", channel, "--retain", "--file", str(path)).exit_code == 0
        assert kept(accord, channel)["payload_base64"] == "/wAK"

    def test_standard_input(self, accord: Accord, channel: str) -> None:
        assert accord("pub", channel, "-", "--retain", stdin="two\nlines\n").exit_code == 0
        assert kept(accord, channel)["payload"] == "two\nlines\n"

    def test_an_argument_that_is_not_utf8(
        self, accord: Accord, channel: str, node: RunningNode
    ) -> None:
        command = [*map(os.fsencode, ACCORD), b"pub", channel.encode(), b"\xff", b"-r"]
        subprocess.run([*command, b"--url", node.url.encode()], check=True, capture_output=True)
        assert kept(accord, channel)["payload_base64"] == "/w=="

    def test_lines(self, accord: Accord, channel: str) -> None:
        heard = accord("pub", channel, "--lines", "--retain", stdin="one\ntwo\r\nthree")
        assert heard.exit_code == 0
        assert heard.stdout.startswith("3 events acknowledged in ")
        assert heard.stdout.endswith("; no one listened to any\n")
        assert kept(accord, channel)["payload"] == "three"

    def test_lines_before_a_mistake_are_published(self, accord: Accord, channel: str) -> None:
        lines = "one\ntwo\n" + "x" * 1_100_000
        heard = accord("pub", channel, "--lines", "--retain", stdin=lines)
        assert heard.exit_code == 2
        assert "standard input:3: expected at most" in heard.stderr
        assert heard.stdout.startswith("2 events acknowledged")
        assert kept(accord, channel)["payload"] == "two"

    def test_again_and_again(self, accord: Accord, channel: str) -> None:
        heard = accord("pub", channel, "x", "--count", "3", "--every", "1ms")
        *each, summary = heard.stdout.splitlines()
        words = f"acknowledged, but no one listens  {channel}  1 B  event "
        assert [line.startswith(words) for line in each] == [True] * 3
        assert summary.startswith("3 events acknowledged in")

    def test_many(self, accord: Accord, channel: str) -> None:
        heard = accord("pub", channel, "x", "--count", "1000")
        assert heard.stdout.startswith("1,000 events acknowledged")
        assert len(heard.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["uav/+", "x"], "channel: expected a channel without wildcards"),
        (["", "x"], "channel: expected at least one character"),
        (["a", "x", "-a", "altitude"], "--attribute: expected NAME=VALUE, got 'altitude'"),
        (["a", "x", "-a", "n=1", "-a", "n=2"], "--attribute: expected 'n' once, given twice"),
        (["a", "x", "-a", "key=1"], "attributes.key: this name is reserved"),
        (["a", "--file", "no/such/file"], "no/such/file: no such file or directory"),
        (["a", "--metadata", __file__], "metadata"),
        (["a", "x", "--every", "soon"], "--every: expected a duration"),
    ],
)
def test_mistakes_show_before_anything_is_connected(
    accord: Accord, dead_url: str, arguments: list[str], problem: str
) -> None:
    heard = accord("pub", *arguments, "--url", dead_url)
    assert heard.exit_code == 2
    assert f"error: {problem}" in heard.stderr


@pytest.mark.parametrize(
    "arguments", [["x", "--lines"], ["x", "--file", "f"], ["--lines", "--count", "2"], ["-q", "3"]]
)
def test_options_that_exclude_each_other(accord: Accord, arguments: list[str]) -> None:
    heard = accord("pub", "a", *arguments)
    assert heard.exit_code == 2
    assert "Traceback" not in heard.output


def test_no_node(accord: Accord, dead_url: str) -> None:
    heard = accord("pub", "a", "x", "--url", dead_url)
    assert heard.exit_code == 2
    assert heard.stderr.startswith(f"error: no node answers at {dead_url} (connection refused)")
    assert heard.stdout == ""
