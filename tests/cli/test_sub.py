"""`accord sub` against a node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import accord as accord_package
from accord.cli.connection import read_target
from accord.cli.sub import SubRunner
from accord.client.messages import ReceivedEvent
from accord.runtime.users import hash_password
from tests.brokers import HOST, start_accord
from tests.cli.conftest import Accord, RunningNode
from tests.cli.test_terminal import ACCORD, ENVIRONMENT

LIMIT_S = 60.0


def retain(accord: Accord, channel: str, payload: str, *attributes: str) -> None:
    options = [text for pair in attributes for text in ("-a", pair)]
    assert accord("pub", channel, payload, "--retain", *options).exit_code == 0


class TestOutput:
    def test_for_people(self, accord: Accord, channel: str) -> None:
        retain(accord, channel, "on station", "altitude_m=420", "platform=UAV")
        heard = accord("sub", channel, "--count", "1")
        assert heard.exit_code == 0
        assert heard.stderr == ""
        time, *rest = heard.stdout.split("  ")
        assert len(time) == len("12:04:33.120")
        shown = [part.strip() for part in rest if part.strip()]
        assert shown == [channel, "altitude_m=420", "platform='UAV'", "retained", "on station"]

    def test_json_is_what_predicates_read(self, accord: Accord, channel: str) -> None:
        retain(accord, channel, "día", "altitude_m=420")
        lines = accord("sub", channel, "--count", "1", "--json").stdout
        assert json.loads(lines)["payload"] == "día"
        matched = accord("predicate", "match", "altitude_m > 300", "-", "--json", stdin=lines)
        assert matched.stdout == lines

    def test_raw_is_just_the_payload(self, accord: Accord, channel: str) -> None:
        accord("pub", channel, "-", "--retain", stdin=b"\xff\x00\r\n")
        assert accord("sub", channel, "--count", "1", "--raw").stdout_bytes == b"\xff\x00\r\n"
        retain(accord, f"{channel}/b", "text")
        retain(accord, f"{channel}/c", "text")
        both = accord("sub", f"{channel}/+", "--count", "2", "--raw")
        assert both.stdout_bytes == b"text\ntext\n"


class TestWhat:
    def test_only_what_matches(self, accord: Accord, channel: str) -> None:
        for number in range(6):
            retain(accord, f"{channel}/{number}", str(number), f"n={number}")
        heard = accord("sub", f"{channel}/+", "--where", "n >= 4", "--count", "2", "--raw")
        assert sorted(heard.stdout.split()) == ["4", "5"]

    def test_xpath(self, accord: Accord, channel: str, tmp_path: Path) -> None:
        for number in range(3):
            path = tmp_path / f"{number}.xml"
            path.write_text(f"<report><seen>{number}</seen></report>")
            name = f"{channel}/{number}"
            accord("pub", name, str(number), "--metadata", str(path), "--retain")
        heard = accord("sub", f"{channel}/+", "--xpath", "/report/seen > 1", "-n", "1", "--raw")
        assert heard.stdout == "2"

    def test_several_filters_of_which_one_is_given_twice(
        self, accord: Accord, channel: str
    ) -> None:
        retain(accord, f"{channel}/a", "a")
        retain(accord, f"{channel}/b", "b")
        filters = [f"{channel}/a", f"{channel}/b", f"{channel}/a"]
        heard = accord("sub", *filters, "--count", "2", "--raw")
        assert sorted(heard.stdout.split()) == ["a", "b"]

    def test_without_what_was_retained(self, accord: Accord, channel: str) -> None:
        retain(accord, channel, "old")
        heard = accord("sub", channel, "--no-retained", "--for", "200ms", "--count", "1")
        assert heard.stdout == ""
        assert heard.exit_code == 1

    def test_time_is_up(self, accord: Accord, channel: str) -> None:
        heard = accord("sub", channel, "--for", "1ms")
        assert (heard.exit_code, heard.stdout, heard.stderr) == (0, "", "")


class TestMistakes:
    def test_a_bad_predicate_shows_where(self, accord: Accord, dead_url: str) -> None:
        heard = accord("sub", "uav/+", "--where", "altitude_m >> 3", "--url", dead_url)
        assert heard.exit_code == 2
        message, *pointed = heard.stderr.splitlines()
        assert message.startswith("error: unexpected '>' at character 13, expected")
        assert pointed == ["  altitude_m >> 3", "              ^"]

    def test_bad_xpath(self, accord: Accord, dead_url: str) -> None:
        heard = accord("sub", "uav/+", "--xpath", "/report[", "--url", dead_url)
        assert heard.exit_code == 2
        assert "^" in heard.stderr

    @pytest.mark.parametrize("pattern", ["", "a/#/b", "$share/x"])
    def test_a_bad_filter(self, accord: Accord, dead_url: str, pattern: str) -> None:
        heard = accord("sub", pattern, "--url", dead_url)
        assert heard.exit_code == 2
        assert "error: FILTER: " in heard.stderr

    @pytest.mark.parametrize(
        "arguments", [["--where", "a", "--xpath", "/a"], ["--json", "--raw"], ["--count", "0"]]
    )
    def test_options_that_exclude_each_other(self, accord: Accord, arguments: list[str]) -> None:
        assert accord("sub", "a", *arguments).exit_code == 2

    def test_a_bad_beginning(self, accord: Accord, dead_url: str) -> None:
        heard = accord("sub", "a", "--since", "yesterday", "--url", dead_url)
        assert heard.exit_code == 2
        assert heard.stderr.startswith("error: --since: expected a time such as -24h")

    def test_a_node_without_a_past(self, accord: Accord) -> None:
        heard = accord("sub", "a", "--since", "-24h")
        assert heard.exit_code == 2
        assert "since: there is no data pipeline: it is switched off" in heard.stderr

    def test_no_node(self, accord: Accord, dead_url: str) -> None:
        heard = accord("sub", "a", "--url", dead_url)
        assert heard.exit_code == 2
        assert heard.stderr.startswith(f"error: no node answers at {dead_url}")

    def test_users(self, accord: Accord) -> None:
        config = f'[users.ann]\npassword = "{hash_password("right")}"\n'
        with start_accord(config=config) as broker:
            ask = ["sub", "a", "--for", "1ms", "--url", f"mqtt://{HOST}:{broker.port}"]
            right = accord(*ask, "--user", "ann", ACCORD_PASSWORD="right")  # noqa: S106
            assert right.exit_code == 0
            wrong = accord(*ask, "--user", "ann", ACCORD_PASSWORD="wrong")  # noqa: S106
            assert wrong.exit_code == 2
            assert wrong.stderr.startswith("error: the server refused the connection: bad user")
            assert accord(*ask).exit_code == 2


def test_events_are_shown_as_they_come(node: RunningNode, channel: str) -> None:
    shown: list[ReceivedEvent] = []
    following = SubRunner([channel], shown.append, where="n > 0", count=3, limit_s=LIMIT_S)

    async def converse() -> None:
        watching = asyncio.create_task(following.run(read_target(node.url, None, None)))
        async with accord_package.connect(node.url) as session:
            while not (await session.publish(channel, "first", n=1)).has_subscribers:
                await asyncio.sleep(0.01)
            for number in range(4):
                await session.publish(channel, str(number), n=number)
            await watching

    asyncio.run(converse())
    assert [event.text for event in shown] == ["first", "1", "2"]
    assert following.shown == 3


@contextmanager
def subscriber(node: RunningNode, channel: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*ACCORD, "sub", channel, "--json", "--url", node.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_leaving_by_ctrl_c(accord: Accord, node: RunningNode, channel: str) -> None:
    retain(accord, channel, "there")
    with subscriber(node, channel) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"there" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert process.stderr.read() == os.linesep.encode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_stays_at_the_node(
    accord: Accord, node: RunningNode, channel: str, number: signal.Signals
) -> None:
    retain(accord, channel, "there")
    with subscriber(node, channel) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"there" in process.stdout.readline()
        process.send_signal(number)
        assert process.wait() == (-number if number == signal.SIGKILL else 0)
        assert process.stderr.read().strip() == b""
    while "no one listens" not in accord("pub", channel, "gone").stdout:
        pass  # the node needs a moment to see that a killed one is gone


def test_replies_to_requests_are_not_shown(node: RunningNode) -> None:
    shown: set[str] = set()
    filters = ("#", "accord-response/+")
    following = SubRunner(filters, lambda event: shown.add(event.channel))

    async def converse() -> None:
        watching = asyncio.create_task(following.run(read_target(node.url, None, None)))
        async with accord_package.connect(node.url) as session:
            while not {"accord-response/x", "seen"} <= shown:  # subscribed one after the other
                for channel in ("accord-response/x/1", "accord-response/x", "seen"):
                    await session.publish(channel, qos=1)
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(converse())
    assert "accord-response/x/1" not in shown


def test_a_reader_that_leaves_early_is_no_mistake(
    accord: Accord, node: RunningNode, channel: str
) -> None:
    retain(accord, channel, "there")
    with subscriber(node, channel) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"there" in process.stdout.readline()
        process.stdout.close()
        while process.poll() is None:
            accord("pub", channel, "next", "-q", "0")
        assert process.stderr.read() == b""
