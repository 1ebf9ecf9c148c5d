"""`accord why`, against the API over a fake ledger."""

from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from rich.console import Console

from accord.cli.why import MAX_DESTINATIONS, draw_event, draw_outcomes
from accord.core.monitoring.event_sentences import EventVerdict
from accord.core.monitoring.ledger import event_id
from accord.core.monitoring.outcomes import DeliveryOutcome, DeliveryOutcomes
from accord.core.monitoring.top import CPU, LINK, NODE_LIMIT, Ahead, Waiting
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connect, Subscribe, TopicFilter
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import Framer
from accord.operations.events import EventOutcomes
from tests.cli.conftest import Accord, RunningNode
from tests.cli.ledger_server import run, serving
from tests.fake_ledger import FIRST, START_MS, FakeLedger

EVENT = event_id(FIRST + 1)
SUBACK = 9


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(FakeLedger().fill()) as url:
        yield url


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@contextmanager
def subscriber(
    node: RunningNode, client: str, channel: str, receive_maximum: int = 100
) -> Iterator[None]:
    """A client that acknowledges nothing; its session stays for a minute."""
    url = urlsplit(node.url)
    properties = Properties(session_expiry_s=60, receive_maximum=receive_maximum)
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(encode(Connect(client, properties=properties), V5))
        connection.sendall(encode(Subscribe(1, (TopicFilter(channel, 1),)), V5))
        framer = Framer(1_000_000)
        while not any(first >> 4 == SUBACK for first, _ in framer.feed(connection.recv(65_536))):
            pass
        yield


def publish(accord: Accord, channel: str, size: int) -> str:
    """The event's id, as `accord pub` prints it."""
    return accord("pub", channel, "x" * size).stdout.split()[-1]


class TestWaiting:
    """Of a real node, whose client does not get all there is for it."""

    def test_for_a_limit_behind_others(
        self, accord: Accord, node: RunningNode, channel: str
    ) -> None:
        client = f"slow-{channel[:-8]}"
        accord("policy", "limit", "--client", client, "16 kbit/s")
        try:
            with subscriber(node, client, channel):
                events = [publish(accord, channel, 50_000) for _ in range(4)]
                told = [accord("why", event, COLUMNS="80").stdout for event in events]
        finally:
            accord("policy", "limit", "--client", client, "none")
        assert f"{client} delivered" in " ".join(told[0].split())
        assert "behind nothing: it is the next" in told[1]
        lines = words(told[3])
        assert lines[0].startswith(f"{events[3]} {channel} from ")
        verdict = rf"Still waiting for {client} after .*: the client's limit of 16 kbit/s, .*"
        assert re.match(verdict, " ".join(lines[2:]))
        place = next(n for n, line in enumerate(lines) if line.startswith(f"{client} waiting"))
        assert re.fullmatch(rf"{client} waiting for [\d.]+ m?s, since 20.*", lines[place])
        assert re.fullmatch(
            r"waits for the client's limit of 16 kbit/s, [\d.]+ s more at least", lines[place + 1]
        )
        assert lines[place + 2 :] == [
            "behind 2 events (100 KB) of importance 3",
            "importance 3, no policy; 50 KB",
        ]
        assert all(len(line) <= 80 for each in told for line in each.splitlines())

    def test_for_the_client(self, accord: Accord, node: RunningNode, channel: str) -> None:
        client = f"busy-{channel[:-8]}"
        with subscriber(node, client, channel, receive_maximum=1):
            publish(accord, channel, 10)
            waits = publish(accord, channel, 10)
            told = accord("why", waits, COLUMNS="80").stdout
            assert "for the client, which has 1 event to acknowledge first" in told
            assert "behind nothing" in told
        while "to acknowledge" in told:  # until the node knows that the client is gone
            told = accord("why", waits, COLUMNS="80").stdout
        assert "for the client to connect again" in told
        assert re.search(r"behind 1 event \(\d+ B\) of importance 3", told)

    def test_for_a_client_that_does_not_read(
        self, accord: Accord, node: RunningNode, channel: str
    ) -> None:
        with subscriber(node, f"deaf-{channel[:-8]}", channel):
            told = ""
            while "waiting" not in told:  # more than any buffer on the way takes
                told = accord("why", publish(accord, channel, 3_000_000), COLUMNS="80").stdout
        assert re.search(r"for the link or the client to read: [\d.]+ .?B are not", told)
        assert re.search(r"importance 3, no policy; 3 MB", told)
        assert all(len(line) <= 80 for line in told.splitlines())

    def test_over_http(self, accord: Accord, node: RunningNode, channel: str) -> None:
        client = f"away-{channel[:-8]}"
        with subscriber(node, client, channel, receive_maximum=1):
            events = [publish(accord, channel, 10) for _ in range(3)]
            with urlopen(f"{node.http_url}/api/v1/events/{events[2]}") as answer:  # noqa: S310
                found = json.load(answer)
            [printed] = accord("why", events[2], "--json").stdout.splitlines()
        assert found["outcomes"] == []
        [waiting] = found["waiting"]
        size = waiting["size"]
        assert waiting["ahead"] == [{"importance": 3, "events": 1, "bytes": size}]
        expected = {
            "destination": client,
            "waits_for": "acknowledgement",
            "unacknowledged": 1,
            "importance": 3,
            "channel": channel,
        }
        assert expected.items() <= waiting.items()
        assert found["received_ms"] <= waiting["queued_ms"] <= waiting["taken_ms"]
        assert json.loads(printed).keys() == found.keys()

    @pytest.mark.parametrize(
        ("facts", "line"),
        [
            (
                {"waits_for": LINK, "under_way_bytes": 70_000},
                "for the link or the client to read: 70 KB are not acknowledged yet",
            ),
            (
                {"waits_for": NODE_LIMIT, "limit_bps": 800_000, "wait_ms": 1_500},
                "for the node's limit of 800 kbit/s, 1.5 s more at least",
            ),
            (
                {"waits_for": CPU, "destination": ""},
                "for the CPU: it is not matched with subscriptions yet",
            ),
            ({"waits_for": "something new"}, "for something new"),
        ],
    )
    def test_in_words(self, facts: dict[str, Any], line: str) -> None:
        where = Waiting(
            **{
                "destination": "alpha-1",
                "channel": "patrol/report",
                "publisher": "patrol-7",
                "received_ms": START_MS,
                "queued_ms": START_MS + 2,
                "taken_ms": START_MS + 5_002,
                "size": 100,
                "importance": 3,
                "ahead": (
                    Ahead(importance=3, events=2, bytes=2_000),
                    Ahead(importance=6, events=1_000, bytes=41_000),
                ),
                **facts,
            }
        )
        ledger = FakeLedger().fill()
        ledger.queued.append((FIRST + 1, where))
        with serving(ledger) as url:
            told = words(run(url, "why", EVENT, width=100).stdout)
        start = next(n for n, each in enumerate(told) if " waiting for 5 s, since " in each)
        assert told[start].startswith(where.destination or "the task queue")
        assert told[start + 1 : start + 4] == [
            f"waits {line}",
            "behind 1,000 events (41 KB) of importance 6, 2 events (2 KB) of importance 3",
            "importance 3, no policy; 100 B",
        ]


class TestOneEvent:
    def test_each_destination_is_told(self, url: str) -> None:
        heard = run(url, "why", EVENT, width=140)
        assert heard.exit_code == 0, heard.stderr
        lines = words(heard.stdout)
        assert lines[0] == f"{EVENT} patrol/report from patrol-7"
        assert lines[1].startswith("received 2025-11-1")
        start = next(n for n, line in enumerate(lines) if line.startswith("bravo expired"))
        assert "3.2 s after it came" in lines[start]
        assert lines[start + 1 : start + 4] == [
            (
                "could not arrive before its deadline of 5 s: 3.2 s queued, sending 12 KB takes "
                "0.3 s at 300 kbit/s"
            ),
            "handling 1 ms, queued 3.2 s, sending 0.3 s; 12 KB",
            "importance 5, policy Reports",
        ]
        assert "from 70.3 KB to 9.5 KB: scaled to 640x480" in lines
        assert "handling 1 ms, queued 40 ms, sending 0.3 s; 70.3 KB → 9.5 KB" in lines
        assert "importance 5, no policy" in lines
        assert "packet too large" in lines

    @pytest.mark.parametrize("text", [EVENT.lower(), f"{EVENT[:4]}-{EVENT[4:]}"])
    def test_ids_as_people_type_them(self, url: str, text: str) -> None:
        assert run(url, "why", text).exit_code == 0

    def test_one_of_a_run(self, url: str) -> None:
        lines = words(run(url, "why", event_id(FIRST + 4)).stdout)
        assert lines[0] == f"{event_id(FIRST + 4)} (several) from x"
        assert lines[-1] == "importance 3, no policy; together with 4 other events"

    def test_json(self, url: str) -> None:
        fields = json.loads(run(url, "why", EVENT, "--json").stdout)
        assert fields["event"] == EVENT
        assert {each["outcome"] for each in fields["outcomes"]} >= {"expired", "late", "shed"}

    def test_unknown(self, url: str) -> None:
        heard = run(url, "why", event_id(FIRST - 5))
        assert heard.exit_code == 1
        assert "is unknown: the ledger reaches back to 2025-11-13T02:13:29Z only" in " ".join(
            heard.stderr.split()
        )

    def test_no_id(self, url: str) -> None:
        heard = run(url, "why", "hello!")
        assert heard.exit_code == 2
        assert heard.stderr.startswith("error: EVENT_ID: expected letters and digits, got 'hello!'")

    def test_filters_are_for_lists(self, url: str) -> None:
        heard = run(url, "why", EVENT, "--client", "x")
        assert heard.exit_code == 2
        assert heard.stderr == "error: --client: expected without an event id\n"


class TestRecent:
    def test_a_table(self, url: str) -> None:
        heard = run(url, "why", width=140)
        assert heard.exit_code == 0, heard.stderr
        lines = words(heard.stdout)
        assert lines[0] == "event at channel to outcome took why"
        assert f"{event_id(FIRST + 2)} +4" in lines[2]
        assert "(several)" in lines[2]
        assert any(line.startswith(EVENT) and "shed" in line for line in lines)

    def test_fits_a_small_terminal(self, url: str) -> None:
        narrow, wide = (run(url, "why", width=width).stdout for width in (80, 140))
        assert max(map(len, narrow.splitlines())) <= 80
        assert sorted(narrow.replace("─", "").split()) == sorted(wide.replace("─", "").split())

    def test_filters(self, url: str) -> None:
        heard = run(
            url, "why", "--channel", "patrol/+", "--outcome", "shed", "--client", "echo", "-n", "5"
        )
        lines = words(heard.stdout)
        assert len(lines) == 3
        assert "queue full" in lines[2]

    def test_json_has_a_line_each(self, url: str) -> None:
        lines = run(url, "why", "--json", "--last", "2").stdout.splitlines()
        assert [json.loads(line)["destination"] for line in lines] == ["bravo", "golf"]

    def test_mistakes_in_filters(self, url: str) -> None:
        heard = run(url, "why", "--outcome", "gone")
        assert heard.exit_code == 2
        assert "error: outcome: expected delivered, late" in heard.stderr

    def test_nothing_found(self, url: str) -> None:
        heard = run(url, "why", "--client", "nobody")
        assert heard.stdout.startswith("nothing found; searched back to 2025-11-1")
        with serving(FakeLedger()) as empty:
            assert run(empty, "why").stdout == "the ledger is empty\n"


def outcome(number: int, outcome: str = "delivered") -> DeliveryOutcome:
    return DeliveryOutcome(
        event=EVENT,
        channel="a\x1b[31m",
        publisher="p",
        destination=f"d{number}\x1b",
        outcome=outcome,
        reason="\x07",
        received_ms=START_MS,
        queued_ms=START_MS,
        done_ms=START_MS - 5,
        queueing_ms=0,
        size=1,
        importance=3,
    )


def test_many_destinations_are_summed_up_and_nothing_obeys() -> None:
    outcomes = tuple(outcome(n, "shed" if n % 2 else "late") for n in range(MAX_DESTINATIONS + 3))
    story = EventOutcomes(
        event=EVENT,
        channel="a\x1b[31m",
        publisher="\x1b",
        received_ms=START_MS,
        verdict=EventVerdict(sentence="Shed \x1b[31m.", cause="shed"),
        outcomes=outcomes,
        is_complete=False,
    )
    output = io.StringIO()
    console = Console(file=output, width=100)
    console.print(draw_event(story))
    console.print(draw_outcomes(DeliveryOutcomes(outcomes=outcomes, is_complete=True)))
    text = output.getvalue()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "and 3 more: 2 late, 1 shed (--json has all)" in text
    assert "older parts of the ledger were not searched" in text
    assert "0 ms after it came" in text
