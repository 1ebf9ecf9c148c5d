"""`accord why`, against the API over a fake ledger."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from rich.console import Console

from accord.api.outcomes import EventOutcomes, Outcome, Outcomes
from accord.cli.why_screen import MAX_DESTINATIONS, draw_event, draw_outcomes
from accord.core.monitoring.ledger import event_id
from tests.cli.ledger_server import run, serving
from tests.fake_ledger import FIRST, START_MS, FakeLedger

EVENT = event_id(FIRST + 1)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(FakeLedger().fill()) as url:
        yield url


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


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
        assert heard.exit_code == 2
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
        assert len(lines) == 11
        assert any(line.startswith(EVENT) and "shed" in line for line in lines)

    def test_fits_a_small_terminal(self, url: str) -> None:
        lines = run(url, "why", width=80).stdout.splitlines()
        assert max(map(len, lines)) <= 80
        assert all(EVENT in line for line in lines[3:-1])

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


def outcome(number: int, outcome: str = "delivered") -> Outcome:
    return Outcome(
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
        outcomes=outcomes,
        is_complete=False,
    )
    output = io.StringIO()
    console = Console(file=output, width=100)
    console.print(draw_event(story))
    console.print(draw_outcomes(Outcomes(outcomes=outcomes, is_complete=True), width=100))
    text = output.getvalue()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "and 3 more: 2 late, 1 shed (--json has all)" in text
    assert "older parts of the ledger were not searched" in text
    assert "0 ms after it came" in text
