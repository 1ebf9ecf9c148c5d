"""`accord status`: against a node, and against what is none."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess

import msgspec
import pytest
from benchmarks.ports import free_port
from msgspec.structs import replace
from rich.console import Console

from accord.cli.connection import UnreachableError
from accord.cli.http_client import NodeHttpClient
from accord.cli.status import MAX_CLIENTS, StatusSamples, draw_status, to_fields
from accord.core.model.errors import InputError
from accord.core.monitoring.counters import Counters
from accord.core.monitoring.rates import ClientRates
from accord.core.monitoring.statistics import JournalStatus, PipelineStatus, Statistics
from accord.core.monitoring.verdict import NodeProblem
from accord.operations.status import GetStatus, NodeSummary
from accord.runtime.users import hash_password
from tests.brokers import HOST, start_accord
from tests.cli.conftest import Accord, RunningNode, wait_for
from tests.cli.http_answers import answering
from tests.cli.test_terminal import ACCORD, ENVIRONMENT


def status_of(statistics: Statistics, *, is_ready: bool = True) -> NodeSummary:
    return NodeSummary(
        name="alpha",
        version="1.2",
        build="native extension",
        is_ready=is_ready,
        statistics=statistics,
    )


def shown(
    statistics: Statistics, before: Statistics | None = None, *, is_ready: bool = True
) -> list[str]:
    return drawn(status_of(statistics, is_ready=is_ready), ClientRates.between(before, statistics))


def drawn(summary: NodeSummary, rates: ClientRates) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=100).print(draw_status(summary, rates))
    lines = [" ".join(line.split()) for line in output.getvalue().splitlines()]
    return [line for line in lines if line and "──" not in line]


class TestRates:
    def test_between_two_looks(self) -> None:
        counters = Counters(started_ms=0)
        counters.publishes_received = [100, 0, 0]
        before = counters.snapshot(now_ms=1_000)
        counters.publishes_received = [110, 5, 5]
        counters.publishes_sent = [40, 0, 0]
        counters.bytes_received = 3_000
        counters.count_shed("expired", "raven-7", 4)
        rates = ClientRates.between(before, counters.snapshot(now_ms=3_000))
        assert rates == ClientRates(
            seconds=2,
            received_events=10,
            sent_events=20,
            received_bytes=1_500,
            sent_bytes=0,
            shed_events=2,
        )

    def test_since_the_start_where_the_node_was_started_again(self) -> None:
        counters = Counters(started_ms=0)
        counters.publishes_received = [100, 0, 0]
        before = counters.snapshot(now_ms=60_000)
        again = Counters(started_ms=61_000)
        again.publishes_received = [30, 0, 0]
        rates = ClientRates.between(before, again.snapshot(now_ms=71_000))
        assert (rates.seconds, rates.received_events) == (10, 3)


class TestScreen:
    @pytest.mark.parametrize(
        ("pipeline", "words"),
        [
            (PipelineStatus(problem="no data"), "pipeline off: no data"),
            (PipelineStatus(state="starting"), "pipeline starting"),
            (
                PipelineStatus(state="failed", problem="there is no Java: install it"),
                "pipeline failed: there is no Java: install it",
            ),
            (
                PipelineStatus(
                    state="ready",
                    build="native extension",
                    lag_ms=2_500,
                    lag_records=1_200,
                    rows_per_s=90,
                    bytes=5_000_000,
                    files=2,
                    queries=3,
                ),
                "pipeline ready (native extension), 2.5 s behind (1,200 records), 90 rows/s;",
            ),
            (
                PipelineStatus(
                    state="ready",
                    restarts=2,
                    last_end="it ended with code 1: no luck",
                    last_end_ms=1,
                    last_output=("Traceback", "no luck"),
                ),
                ": it ended with code 1: no luck Traceback no luck",
            ),
            (
                PipelineStatus(
                    state="ready", spark_ui="http://127.0.0.1:4040", event_log="file:/events"
                ),
                "Spark's page: http://127.0.0.1:4040 Spark's event logs: file:/events",
            ),
        ],
    )
    def test_the_pipeline(self, pipeline: PipelineStatus, words: str) -> None:
        statistics = replace(Counters(started_ms=0).snapshot(now_ms=1), pipeline=pipeline)
        assert words in " ".join(shown(statistics))

    def test_a_node_that_has_done_nothing(self) -> None:
        counters = Counters(started_ms=0)
        assert shown(counters.snapshot(now_ms=5_000)) == [
            "alpha ready accord 1.2 (native extension), up for 5.0 s",
            "in out",
            "events/s 0 0 over 5.0 s",
            "bytes/s 0 B 0 B",
            "events 0 0 since the start",
            "bytes 0 B 0 B",
            "clients 0 connected, 0 at most; 0 sessions",
            "subscriptions 0",
            "retained 0 events, 0 B",
            "waiting 0 events, 0 B",
            "shed 0 events",
            "journal none, nothing is kept on disk",
        ]

    def test_everything_that_can_be_said(self) -> None:
        counters = Counters(started_ms=0)
        counters.count_connect()
        counters.sessions, counters.subscriptions, counters.predicates = 2, 3, 1
        counters.matched, counters.unmatched = 90, 10
        counters.queued_messages[3], counters.queued_bytes[3] = 7, 4_200
        counters.count_wait(3, 3, 99)
        counters.count_wait(5, 0)
        counters.count_shed("slow reader", "raven\x1b[31m", 12)
        journal = JournalStatus(
            segments=2, bytes=12_300_000, first_offset=10, next_offset=110, synced_offset=105
        )
        lines = shown(counters.snapshot(now_ms=11_520_000, journal=journal))
        assert "alpha ready accord 1.2 (native extension), up for 3 h 12 min" in lines
        assert "clients 1 connected, 1 at most; 2 sessions" in lines
        assert "subscriptions 3, 1 with a predicate" in lines
        assert "unmatched 10 of 100 events reached nobody" in lines
        assert "waiting 7 events, 4.2 KB" in lines
        assert "journal 100 records, 12.3 MB in 2 segments, 5 not on disk yet" in lines
        assert lines[lines.index("importance waiting bytes half waited 99 % waited") + 1 :] == [
            "5 0 0 B < 1 ms < 1 ms",
            "3 7 4.2 KB < 4 ms < 4 ms",
            "shed because of events for client",
            r"slow reader 12 raven\x1b[31m",
        ]

    def test_trouble(self) -> None:
        counters = Counters(started_ms=0)
        journal = JournalStatus(failure="No space left on device")
        lines = shown(counters.snapshot(now_ms=1, journal=journal), is_ready=False)
        assert lines[0].startswith("alpha not ready")
        assert lines[-1] == "journal failed: No space left on device"

    def test_many_clients_that_miss_something(self) -> None:
        counters = Counters(started_ms=0)
        for number in range(MAX_CLIENTS + 3):
            counters.count_shed("expired", f"client-{number}", 1)
        assert shown(counters.snapshot(now_ms=1))[-1] == "3 others"


class TestNode:
    def test_for_people(self, accord: Accord) -> None:
        heard = accord("status", "--every", "10ms")
        assert heard.exit_code == 0
        assert "  ready  accord " in heard.stdout
        assert "events/s" in heard.stdout

    def test_json(self, accord: Accord) -> None:
        heard = accord("status", "--json", "--every", "10ms")
        fields = json.loads(heard.stdout)
        assert fields["is_ready"] is True
        assert fields["statistics"]["queues"][3]["importance"] == 3
        assert fields["rates"]["received_events"] >= 0

    def test_again_and_again(self, node: RunningNode) -> None:
        looks = StatusSamples(NodeHttpClient(node.http_url, None, None), 0.01)
        first, second = looks.take()[0], looks.take()[0]
        assert first.statistics.uptime_ms < second.statistics.uptime_ms

    def test_users(self, accord: Accord) -> None:
        port = free_port()
        url = f"http://{HOST}:{port}"
        config = f'[users.ann]\npassword = "{hash_password("right")}"\n'
        ask = ("status", "--every", "1ms", "--url", url)
        with start_accord(config=config, extra=["--http", f"{HOST}:{port}"]):
            wait_for(port)
            nobody = accord(*ask)
            assert nobody.exit_code == 2
            assert "expected the name and password of a user" in nobody.stderr
            assert "give --user and ACCORD_PASSWORD" in nobody.stderr
            ann = accord(*ask, "--user", "ann", ACCORD_PASSWORD="right")  # noqa: S106
            assert ann.exit_code == 0, ann.stderr
            assert accord(*ask[:-1], url.replace("//", "//ann:right@")).exit_code == 0


class TestNoNode:
    def test_nobody_there(self, accord: Accord, dead_url: str) -> None:
        url = dead_url.replace("mqtt", "http")
        heard = accord("status", "--url", url)
        assert heard.exit_code == 2
        assert heard.stderr.startswith(f"error: no node answers at {url} (connection refused)")
        assert "accord up" in heard.stderr

    @pytest.mark.parametrize(
        ("code", "body", "problem"),
        [
            (404, b"nothing here", "answers 404 (nothing here); check --url"),
            (200, b"<html>", "does not answer like a node"),
            (200, b"{}", "does not answer like a node"),
            (200, b"", "does not answer like a node"),
            (503, b"\x1b[31m", "answers 503"),
        ],
    )
    def test_somebody_else_there(self, code: int, body: bytes, problem: str) -> None:
        with answering(lambda _: (code, body)) as url, pytest.raises(UnreachableError) as caught:
            NodeHttpClient(url, None, None).call(GetStatus())
        assert problem in str(caught.value)

    def test_something_that_does_not_speak_http(self, node: RunningNode) -> None:
        source = NodeHttpClient(node.url.replace("mqtt", "http"), None, None)
        with pytest.raises(UnreachableError, match="does not speak HTTP"):
            source.call(GetStatus())

    def test_something_that_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("accord.client.http.TIMEOUT_S", 0.05)
        with socket.create_server((HOST, 0)) as silent:
            source = NodeHttpClient(f"http://{HOST}:{silent.getsockname()[1]}", None, None)
            with pytest.raises(UnreachableError, match="no answer in time"):
                source.call(GetStatus())

    @pytest.mark.parametrize(
        "url", ["mqtt://ann:secret@localhost", "http://", "http://a:b", "", "x"]
    )
    def test_bad_urls(self, url: str) -> None:
        with pytest.raises(InputError, match="--url: expected http://") as caught:
            NodeHttpClient(url, None, None)
        assert "secret" not in str(caught.value)


def test_what_the_api_says_stays_as_it_is() -> None:
    status = status_of(Counters(started_ms=0).snapshot(now_ms=1))
    fields = to_fields(status, ClientRates.between(None, status.statistics))
    rates = fields.pop("rates")
    assert msgspec.convert(fields, NodeSummary) == status
    assert rates["seconds"] == 0.001


@pytest.mark.parametrize("form", [["--json"], []])
def test_watching_through_a_pipe(node: RunningNode, form: list[str]) -> None:
    command = [*ACCORD, "status", "--watch", "--every", "10ms", "--url", node.http_url, *form]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        start = b'{"name"' if form else b"events/s"
        seen = 0
        while seen < 3:
            seen += process.stdout.readline().startswith(start)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 0
        assert process.stderr.read() == b""


class TestWaiting:
    def test_for_a_node_that_starts_later(self) -> None:
        port = free_port()
        command = [*ACCORD, "status", "--wait", "60s", "--every", "10ms"]
        command += ["--url", f"http://{HOST}:{port}"]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as waiting,
            start_accord(extra=["--http", f"{HOST}:{port}"]),
        ):
            said, _ = waiting.communicate()
        assert waiting.returncode == 0
        assert b"ready" in said

    def test_no_longer_than_said(self, accord: Accord, dead_url: str) -> None:
        dead = dead_url.replace("mqtt", "http")
        result = accord("status", "--wait", "300ms", "--url", dead)
        assert result.exit_code == 2
        words = " ".join(result.stderr.split())
        assert "error: not ready after 0.3 s: no node answers at" in words

    def test_for_its_pipeline(self, accord: Accord) -> None:
        result = accord("status", "--wait", "100ms", "--pipeline")
        assert result.exit_code == 2
        assert "the pipeline is off" in " ".join(result.stderr.split())


class TestVerdict:
    def test_it_is_the_first_line(self) -> None:
        problems = tuple(
            NodeProblem(
                key=str(number),
                severity="bad" if number == 0 else "warn",
                subject="x",
                sentence=f"uav/{number}: 6 % late\x1b[31m",
                page="/",
            )
            for number in range(8)
        )
        summary = replace(
            status_of(Counters(started_ms=0).snapshot(now_ms=1)),
            verdict="uav/0: 6 % late, and 7 more problems.",
            problems=problems,
        )
        lines = drawn(summary, ClientRates.between(None, summary.statistics))
        assert lines[0] == "uav/0: 6 % late, and 7 more problems."
        assert lines[1].startswith("uav/1: 6 % late")
        assert lines[6] == "2 more problems"
        assert "\x1b[31m" not in "".join(lines)
