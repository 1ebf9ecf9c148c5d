from __future__ import annotations

import asyncio

import httpx
import msgspec
import pytest
from tests.fake_ledger import FIRST, START_MS, FakeLedger
from tests.fake_net import FakeNet
from tests.fake_node import FakeNode

from accord.core.monitoring.ledger import SHED, event_id
from accord.core.monitoring.outcomes import (
    DeliveryOutcomes,
    rate_text,
    size_text,
    time_text,
)
from accord.core.monitoring.recent_changes import RecentChange, RecentChanges
from accord.core.monitoring.top import Top
from accord.core.router.rights import EVERYTHING, Rights
from accord.http.app import create_app
from accord.journal.ledger_records import LedgerQuery
from accord.operations.channels import CreateChannel
from accord.operations.event_sources import MAX_OUTCOMES
from accord.operations.events import EventOutcomes
from accord.operations.operation import Asker, operation_of
from accord.operations.ports import NodePorts
from accord.operations.status import (
    ChangeList,
    ListChanges,
    PointList,
    SeriesHistory,
    SeriesList,
    SeriesPoints,
)
from accord.runtime.logs import FIELDS
from accord.runtime.requests import ChangeAudit


def ask(path: str, view: FakeLedger) -> httpx.Response:
    app = create_app(NodePorts(view=FakeNode(), ledger=view))

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(main())


@pytest.fixture
def view() -> FakeLedger:
    return FakeLedger().fill()


class TestEvents:
    def test_each_destination_has_its_outcome_and_reason(self, view: FakeLedger) -> None:
        answer = ask(f"/api/v1/events/{event_id(FIRST + 1).lower()}", view)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        found = msgspec.json.decode(answer.content, type=EventOutcomes)
        assert (found.event, found.channel, found.publisher, found.received_ms) == (
            event_id(FIRST + 1),
            "patrol/report",
            "patrol-7",
            START_MS,
        )
        reasons = {each.destination: (each.outcome, each.reason) for each in found.outcomes}
        assert reasons == {
            "golf": ("refused", "packet too large"),
            "fox": (
                "late",
                (
                    "arrived after its deadline of 5 s: 5.1 s queued, sending 12 KB took 1.5 ms at "
                    "64 Mbit/s; link was away"
                ),
            ),
            "echo": ("shed", "queue full"),
            "delta": (
                "replaced",
                f"a newer event with the same key ({event_id(FIRST + 2)}) took its place",
            ),
            "charlie": ("shaped", "from 70.3 KB to 9.5 KB: scaled to 640x480"),
            "bravo": (
                "expired",
                (
                    "could not arrive before its deadline of 5 s: 3.2 s queued, sending 12 KB "
                    "takes 0.3 s at 300 kbit/s"
                ),
            ),
            "alpha-1": ("delivered", ""),
        }
        by_name = {each.destination: each for each in found.outcomes}
        assert by_name["charlie"].from_size == 70_300
        assert by_name["bravo"].deadline_ms == 5_000
        assert by_name["bravo"].sending_ms == 320
        assert by_name["delta"].replaced_by == event_id(FIRST + 2)
        assert by_name["alpha-1"].policy == "Reports"
        assert by_name["alpha-1"].sending_ms is None
        assert by_name["alpha-1"].queueing_ms == 3
        assert view.asked[0] == (LedgerQuery(number=FIRST + 1), MAX_OUTCOMES)

    def test_one_of_several_published_together(self, view: FakeLedger) -> None:
        answer = ask(f"/api/v1/events/{event_id(FIRST + 6)}", view)
        found = msgspec.json.decode(answer.content, type=EventOutcomes)
        assert [(each.event, each.count) for each in found.outcomes] == [(event_id(FIRST + 2), 5)]

    @pytest.mark.parametrize("event", ["U", "0000000000000000", "%00", "é"])
    def test_what_is_no_id(self, view: FakeLedger, event: str) -> None:
        answer = ask(f"/api/v1/events/{event}", view)
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("event id: expected")

    def test_unknown_events(self, view: FakeLedger) -> None:
        newer = ask(f"/api/v1/events/{event_id(FIRST + 99)}", view)
        assert newer.status_code == 404
        assert newer.json()["detail"] == (
            f"event {event_id(FIRST + 99)} is unknown, though the ledger has older ones: nobody "
            "subscribed to it, or there is no such event; `accord why` lists the latest"
        )
        older = ask(f"/api/v1/events/{event_id(FIRST - 1)}", view)
        assert older.json()["detail"] == (
            f"event {event_id(FIRST - 1)} is unknown: the ledger reaches back to "
            "2025-11-13T02:13:29Z only; `accord why` lists the latest"
        )
        empty = ask("/api/v1/events/1", FakeLedger())
        assert empty.status_code == 404
        assert empty.json()["detail"] == "event 1 is unknown: the ledger is empty"


class TestRecent:
    def test_the_latest_come_first(self, view: FakeLedger) -> None:
        found = msgspec.json.decode(
            ask("/api/v1/ledger?limit=3", view).content, type=DeliveryOutcomes
        )
        assert [each.destination for each in found.outcomes] == ["bravo", "golf", "fox"]
        assert not found.is_complete
        assert found.reaches_back_ms == START_MS + 9_000

    def test_filters(self, view: FakeLedger) -> None:
        path = "/api/v1/ledger?channel=patrol/%23&client=echo&outcome=shed&since_ms=5&limit=7"
        found = msgspec.json.decode(ask(path, view).content, type=DeliveryOutcomes)
        assert [each.reason for each in found.outcomes] == ["queue full"]
        assert found.is_complete
        wanted = LedgerQuery(channel="patrol/#", client="echo", outcome=SHED, since_ms=5)
        assert view.asked == [(wanted, 7)]

    @pytest.mark.parametrize(
        ("query", "problem"),
        [
            ("channel=a/%23/b", "channel: expected '#' as the last level only, got 'a/#/b'"),
            ("channel=", "channel: expected at least one character"),
            (
                "outcome=gone",
                (
                    "outcome: expected delivered, late, shaped, replaced, expired, shed, refused, "
                    "got 'gone'"
                ),
            ),
        ],
    )
    def test_mistakes(self, view: FakeLedger, query: str, problem: str) -> None:
        answer = ask(f"/api/v1/ledger?{query}", view)
        place, _, detail = problem.partition(": ")
        assert answer.json() == {
            "status": 400,
            "title": "Bad Request",
            "detail": detail,
            "place": place,
        }
        assert answer.headers["content-type"] == "application/problem+json"

    @pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "since_ms=-1"])
    def test_numbers_that_are_none(self, view: FakeLedger, query: str) -> None:
        assert ask(f"/api/v1/ledger?{query}", view).status_code == 400


class TestSeries:
    @pytest.fixture
    def measured(self, view: FakeLedger) -> FakeLedger:
        for second in range(4):
            view.series.add("cpu_percent", second * 1_000, 10 + second)
            view.series.add("channel/latency_ms/a/b c", second * 1_000, 5)
        return view

    def test_names_with_what_the_window_says(self, measured: FakeLedger) -> None:
        found = msgspec.json.decode(ask("/api/v1/series", measured).content, type=SeriesList)
        assert [each.name for each in found.series] == ["channel/latency_ms/a/b c", "cpu_percent"]
        assert (found.series[1].last, found.series[1].mean, found.series[1].trend) == (13, 11.5, 1)
        some = ask("/api/v1/series?prefix=cpu&limit=1", measured)
        assert len(msgspec.json.decode(some.content, type=SeriesList).series) == 1

    def test_points(self, measured: FakeLedger) -> None:
        answer = ask("/api/v1/series/channel/latency_ms/a/b%20c", measured)
        found = msgspec.json.decode(answer.content, type=SeriesPoints)
        assert list(found.points) == [(0, 5), (1_000, 5), (2_000, 5), (3_000, 5)]
        assert found.summary.deviation == 0

    def test_unknown(self, measured: FakeLedger) -> None:
        answer = ask("/api/v1/series/none", measured)
        assert answer.status_code == 404
        assert answer.json()["detail"] == "no series 'none'"


def test_top(view: FakeLedger) -> None:
    answer = ask("/api/v1/top?limit=5", view)
    assert msgspec.json.decode(answer.content, type=Top) == view.now
    assert ask("/api/v1/top?limit=201", view).status_code == 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (time_text(-3), "0 ms"),
        (time_text(0.25), "0.25 ms"),
        (time_text(99), "99 ms"),
        (time_text(100), "0.1 s"),
        (time_text(61_000), "61 s"),
        (size_text(999), "999 B"),
        (size_text(12_000), "12 KB"),
        (size_text(1_250_000), "1.2 MB"),
        (rate_text(800), "800 bit/s"),
        (rate_text(300_000), "300 kbit/s"),
        (rate_text(1.5e9), "1.5 Gbit/s"),
    ],
)
def test_amounts_in_words(text: str, expected: str) -> None:
    assert text == expected


class TestSeriesHistory:
    def test_points_since_a_time(self) -> None:
        view = FakeLedger()
        for second in range(4):
            view.series.add("a", second * 1_000, second)
            view.series.add("b c", second * 1_000, -second)
        answer = ask("/api/v1/series-history?name=a&name=b%20c&name=none&since_ms=1000", view)
        found = msgspec.json.decode(answer.content, type=SeriesHistory)
        assert set(found.series) == {"a", "b c"}
        assert found.series["a"] == PointList(times_ms=(2_000, 3_000), values=(2, 3))
        later = ask("/api/v1/series-history?name=a&since_ms=9000", view).json()
        assert later == {"series": {"a": {"times_ms": [], "values": []}}}

    @pytest.mark.parametrize("query", ["", "?" + "&".join(["name=a"] * 65), "?name=a&since_ms=-1"])
    def test_wrong_requests(self, query: str) -> None:
        assert ask(f"/api/v1/series-history{query}", FakeLedger()).status_code == 400


class TestChanges:
    def test_the_newest_first(self) -> None:
        changes = RecentChanges()
        for number in range(3):
            changes.link_changed(f"n{number}", is_up=True, now_ms=number)
        node = NodePorts(view=FakeNode(), changes=changes)
        found = listed(node, EVERYTHING, limit=2)
        assert [each.what for each in found] == ["link to n2 is up", "link to n1 is up"]

    def test_every_change_by_an_operation_is_among_them(self) -> None:
        changes = RecentChanges()
        node = NodePorts(
            view=FakeNode(),
            net=FakeNet(),
            changes=changes,
            audit=ChangeAudit(changes, lambda: 7),
        )
        asker = Asker(user="ann", address="10.0.0.9", rights=EVERYTHING)
        created = CreateChannel(name="cas/1", max_delay_ms=40)
        operation_of(CreateChannel).perform(node, created, asker)
        (row,) = listed(node, EVERYTHING)
        assert (row.at_ms, row.who, row.what) == (7, "ann from 10.0.0.9", "channels: create cas/1")
        assert (row.kind, row.page) == ("channel", "/channels/cas/1")
        assert row.detail == "max delay ms 40"
        assert listed(node, Rights(subscribe=("uav/#",))) == ()  # it may not see the channel
        (shown,) = listed(node, Rights(subscribe=("#",)))
        assert shown.detail == ""  # nor what was asked, without the right to policies

    def test_the_log_names_what_was_changed_whatever_the_request(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        audit = ChangeAudit(RecentChanges(), lambda: 7)
        node = NodePorts(view=FakeNode(), net=FakeNet(), audit=audit)
        name = "cas/" + "x" * 500
        request = CreateChannel(name=name)
        with caplog.at_level("INFO"):
            operation_of(CreateChannel).perform(node, request, Asker(user="ann", rights=EVERYTHING))
        (record,) = (each for each in caplog.records if each.getMessage() == "operation: done")
        fields = getattr(record, FIELDS)
        assert fields["request"].endswith("…")  # too long to be logged
        assert (fields["subject"], fields["who"]) == (name, "ann")


def listed(node: NodePorts, rights: Rights, limit: int = 50) -> tuple[RecentChange, ...]:
    found = operation_of(ListChanges).perform(node, ListChanges(limit=limit), Asker(rights=rights))
    assert isinstance(found, ChangeList)
    return found.changes
