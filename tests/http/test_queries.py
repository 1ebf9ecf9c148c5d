"""Kept events, reports, the journal and the registry over HTTP."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import argon2
import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.cli.sample_report import sample_report
from tests.fake_node import FakeNode

from accord.core.monitoring.ledger import event_id
from accord.core.monitoring.measurement_registry import MeasurementRegistry
from accord.core.mqtt.properties import Properties, encode_properties
from accord.core.policy.policy_set import parse_policy_set
from accord.core.queries.journal_http import MSGPACK, decode_part
from accord.core.queries.messages import (
    EventQuery,
    ExportFormat,
    ExportPart,
    HistogramPart,
    Page,
    QueryHit,
)
from accord.core.queries.report import Report
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.retention import Retention
from accord.journal.writer import Journal
from accord.operations.event_export import PART_BYTES
from accord.operations.ports import NodePorts
from accord.operations.query_events import shown_event
from accord.runtime.pipeline import Kind, PipelineError
from accord.runtime.policy_admin import PolicyAdmin, wall_ms
from accord.runtime.policy_store import PolicyStore
from accord.runtime.users import User, Users

NUMBER = 1_763_000_000_000_000_000
QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
PASSWORD = QUICK.hash("x")
ANN = User("ann", PASSWORD, Rights(subscribe=("uav/#", "home/%u/#"), statistics=False))
ROOT = User("root", PASSWORD, Rights(subscribe=("#",), system=True))
READER = User("reader", PASSWORD, Rights(subscribe=("#",)), groups=("analysts",))


def found(
    payload: bytes = b"text", *user: tuple[str, str], channel: str = "uav/1", number: int = NUMBER
) -> QueryHit:
    block = encode_properties(Properties(user=user))
    length = len(block) - (block[0] < 128)  # the encoded length stands in front
    return QueryHit(7, number, 1_763_000_000_123, channel, "ann", 1, block[-length:], payload)


def arrow_part(number: int) -> bytes:
    """One of three, of a stream of Arrow."""
    rows = pa.record_batch({"n": [number]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data[rows.schema.serialize().size if number else 0 : None if number == 2 else -8]


class FakePipeline:
    """Answers with `events`, or with what `fails`."""

    def __init__(self, *events: QueryHit, fails: PipelineError | None = None) -> None:
        self.events = events
        self.fails = fails
        self.asked: list[dict[str, Any]] = []
        self.hangs: asyncio.Event | None = None
        self.was_cancelled = False

    async def net_records(self, since_ms: int, until_ms: int, most: int) -> bytes:
        raise NotImplementedError(since_ms, until_ms, most)

    async def ledger(self, number: int, most: int) -> bytes:
        raise NotImplementedError(number, most)

    async def page(
        self,
        ask: EventQuery,
        *,
        cursor: str,
        rows: int,
        bytes_: int,
        within_ms: int,
        importance: int,
    ) -> Page:
        assert bytes_ > 0
        self.asked.append(
            {
                "ask": ask,
                "cursor": cursor,
                "rows": rows,
                "within_ms": within_ms,
                "importance": importance,
            }
        )
        await self._hang()
        if self.fails is not None:
            raise self.fails
        start = int(cursor or 0)
        shown = self.events[start : start + rows]
        more = str(start + rows) if start + rows < len(self.events) else ""
        return Page(id=1, events=shown, cursor=more, files=3, files_skipped=12, tail=1, took_ms=4)

    async def _hang(self) -> None:
        if self.hangs is not None:
            self.hangs.set()
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise

    async def histogram(
        self,
        ask: EventQuery,
        *,
        until_ms: int,
        cursor: str,
        buckets: int,
        within_ms: int,
        importance: int,
    ) -> HistogramPart:
        await self._hang()
        self.asked.append({"ask": ask, "cursor": cursor, "buckets": buckets, "within": within_ms})
        assert (until_ms, importance) == (ask.until_ms, 3)
        half_ms = until_ms - 30_000
        counts, read_ms, more = ((0, 3), half_ms, "half") if not cursor else ((2, 0), 0, "")
        return HistogramPart(
            id=1,
            first_ms=until_ms - 60_000,
            width_ms=30_000,
            counts=counts,
            read_ms=read_ms,
            cursor=more,
            files=1,
            files_known=2,
        )

    async def export(
        self,
        ask: EventQuery,
        *,
        format_: ExportFormat,
        cursor: str,
        columns: dict[str, str],
        bytes_: int,
        importance: int,
    ) -> ExportPart:
        await self._hang()
        assert (bytes_, importance) == (PART_BYTES, 3)
        self.asked.append({"ask": ask, "format": format_, "cursor": cursor, "columns": columns})
        if self.fails is not None and cursor:
            raise self.fails
        part = int(cursor or 0)
        more = str(part + 1) if part < 2 else ""
        body = arrow_part(part) if format_ == "arrow" else b"%d\r\n" % part
        return ExportPart(id=1, body=body, events=1, columns={"n": "integer"}, cursor=more)

    async def report(self, *, since_ms: int, until_ms: int, channel: str, importance: int) -> bytes:
        if self.fails is not None:
            raise self.fails
        assert importance == 3
        self.asked.append({"length_ms": until_ms - since_ms, "channel": channel})
        return msgspec.json.encode(sample_report())


def ask(
    path: str,
    pipeline: FakePipeline | None = None,
    *,
    user: str = "",
    users: tuple[User, ...] = (),
    journal: Path | None = None,
    registry: MeasurementRegistry | None = None,
    book: str = "",
) -> httpx.Response:
    async def main() -> httpx.Response:
        known = Users(users) if users else None
        administration = PolicyAdmin(parse_policy_set(book), PolicyStore(None))
        node = NodePorts(
            view=FakeNode(),
            policies=administration,
            pipeline=pipeline or FakePipeline(),
            registry=registry or MeasurementRegistry(),
            journal=journal,
            now_ms=wall_ms,
            groups_of=(known or Users()).groups_of,
        )
        app = create_app(node, users=known, is_loopback=False)
        transport = httpx.ASGITransport(app)
        auth = (user, "x") if user else None
        async with httpx.AsyncClient(transport=transport, base_url="http://x", auth=auth) as client:
            answer = await client.get(path)
        if known is not None:
            await known.close()
        return answer

    return asyncio.run(main())


def test_a_page_of_events() -> None:
    event = found(
        b"42 seen",
        *(("altitude_m", "310"), ("speed", "2.5"), ("is_up", "true"), ("kind", "x")),
        *(("at", "2026-11-16T07:30:00Z"), ("metadata", "<a>1</a>"), ("key", "k")),
    )
    pipeline = FakePipeline(event)
    answer = ask("/api/v1/query?channel=uav/%23&where=altitude_m>300&limit=5", pipeline)
    assert answer.status_code == 200
    body = answer.json()
    assert body.pop("events") == [
        {
            "id": event_id(NUMBER),
            "channel": "uav/1",
            "received": "2025-11-13T02:13:20.123Z",
            "publisher": "ann",
            "qos": 1,
            "attributes": {
                "altitude_m": 310,
                "speed": 2.5,
                "is_up": True,
                "kind": "x",
                "at": "2026-11-16T07:30:00Z",
            },
            "metadata": "<a>1</a>",
            "key": "k",
            "payload": "42 seen",
        }
    ]
    assert body == {
        "cursor": None,
        "files": 3,
        "files_skipped": 12,
        "bytes": 0,
        "tail": 1,
        "took_ms": 4,
        "engine": "tail",
        "reached": None,
    }
    (asked,) = pipeline.asked
    assert asked["ask"] == EventQuery(
        channel="uav/#", where="altitude_m>300", is_newest_first=True, limit=5
    )
    assert asked["importance"] == 3


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", ""),
        (b"a\n\tb\r\n", "a\n\tb\r\n"),
        ("día".encode(), "día"),
        (b"\xff\x00", None),
        (b"\x00", None),
        (b"a\x1b[2J", None),
    ],
)
def test_payloads(payload: bytes, text: str | None) -> None:
    event = shown_event(found(payload))
    assert event.payload == text
    if text is None:
        assert msgspec.json.decode(f'"{event.payload_base64}"', type=bytes) == payload


def test_an_event_that_can_not_be_read_is_shown_as_far_as_it_can() -> None:
    event = shown_event(QueryHit(7, NUMBER, 0, "a", "", 0, b"\xff\xff", b"text"))
    assert event.payload == "text"
    assert event.problem


def test_page_after_page() -> None:
    events = tuple(found(str(number).encode()) for number in range(5))
    pipeline = FakePipeline(*events)
    path = "/api/v1/query?channel=uav/%2B&since=-1h&order=oldest&page=2"
    body = ask(path, pipeline).json()
    payloads = [event["payload"] for event in body["events"]]
    while body["cursor"]:
        body = ask(f"/api/v1/query?page=2&cursor={body['cursor']}", pipeline).json()
        payloads += [event["payload"] for event in body["events"]]
    assert payloads == ["0", "1", "2", "3", "4"]
    assert len({asked["ask"] for asked in pipeline.asked}) == 1  # -1h is as it was


def test_what_reads_the_archive_and_as_of_when() -> None:
    pipeline = FakePipeline()
    ask("/api/v1/query?channel=a&engine=spark&as_of=17", pipeline)
    ask("/api/v1/query?channel=a&as_of=2026-11-16T00:00:00Z", pipeline)
    first, second = (asked["ask"] for asked in pipeline.asked)
    assert first == EventQuery(channel="a", is_newest_first=True, engine="spark", as_of_version=17)
    assert (second.as_of_version, second.as_of_ms) == (None, 1_794_787_200_000)


@pytest.mark.parametrize(
    ("query", "place", "problem"),
    [
        ("", "channel", "expected a filter of channels"),
        ("channel=a%23", "channel", ""),
        ("channel=a&where=x >", "where", "expected"),
        ("channel=a&xpath=//", "xpath", ""),
        ("channel=a&where=x=1&xpath=/a", "xpath", "either where or xpath"),
        ("channel=a&since=soon", "since", "expected a time such as -24h"),
        ("channel=a&until=soon", "until", "expected a time such as -24h"),
        ("channel=a&as_of=v1", "as_of", "expected a time such as -24h"),
        ("event=!", "event", "expected letters and digits"),
        ("cursor=x", "cursor", "expected the cursor of a page"),
    ],
)
def test_mistakes(query: str, place: str, problem: str) -> None:
    answer = ask(f"/api/v1/query?{query}")
    assert answer.status_code == 400
    assert answer.json()["place"] == place
    assert problem in answer.json()["detail"]


@pytest.mark.parametrize("query", ["page=0", "page=1001", "limit=0", "order=best", "engine=duck"])
def test_numbers_that_are_none(query: str) -> None:
    assert ask(f"/api/v1/query?channel=a&{query}").status_code == 400


@pytest.mark.parametrize(
    ("kind", "code"),
    [("off", 503), ("unavailable", 503), ("busy", 503), ("timeout", 504), ("failed", 500)],
)
def test_no_answer(kind: Kind, code: int) -> None:
    pipeline = FakePipeline(fails=PipelineError(kind, "the remedy"))
    for path in ("/api/v1/query?channel=a", "/api/v1/report"):
        answer = ask(path, pipeline)
        assert answer.status_code == code
        assert answer.json()["detail"] == "the remedy"
        assert ("retry-after" in answer.headers) == (code == 503)


def test_who_may_subscribe_may_query() -> None:
    pipeline = FakePipeline()
    users = (ANN, READER)

    def code(channel: str, user: str = "ann") -> int:
        path = f"/api/v1/query?channel={channel}"
        return ask(path, pipeline, user=user, users=users).status_code

    assert code("uav/%23") == code("home/ann/%23") == code("%23", "reader") == 200
    assert code("%23") == code("home/bob/%23") == code("$SYS/%23") == 403
    assert ask("/api/v1/query?channel=uav/1", pipeline, users=users).status_code == 401
    assert ask("/api/v1/status", pipeline, user="ann", users=users).status_code == 403


def test_a_cursor_gives_no_rights() -> None:
    pipeline = FakePipeline(found(), found())
    path = "/api/v1/query?channel=%23&page=1"
    cursor = ask(path, pipeline, user="reader", users=(ANN, READER)).json()["cursor"]
    path = f"/api/v1/query?cursor={cursor}"
    assert ask(path, pipeline, user="reader", users=(ANN, READER)).status_code == 200
    assert ask(path, pipeline, user="ann", users=(ANN, READER)).status_code == 403


def test_one_event_by_its_id() -> None:
    path = f"/api/v1/query?event={event_id(NUMBER)}"
    mine, other = FakePipeline(found()), FakePipeline(found(channel="secret"))
    assert len(ask(path, mine, user="ann", users=(ANN,)).json()["events"]) == 1
    assert mine.asked[0]["ask"].number == NUMBER
    assert ask(path, other, user="ann", users=(ANN,)).json()["events"] == []


def test_policies_say_how_much_a_query_matters() -> None:
    book = """
        [[policies]]
        name = "analysts"
        operation = "query"
        channel = "uav/#"
        group = "analysts"
        importance = 6
    """
    pipeline = FakePipeline()
    ask("/api/v1/query?channel=uav/1", pipeline, user="reader", users=(READER, ROOT), book=book)
    ask("/api/v1/query?channel=uav/%23", pipeline, user="reader", users=(READER, ROOT), book=book)
    ask("/api/v1/query?channel=other", pipeline, user="reader", users=(READER, ROOT), book=book)
    ask("/api/v1/query?channel=uav/1", pipeline, user="root", users=(READER, ROOT), book=book)
    assert [asked["importance"] for asked in pipeline.asked] == [6, 6, 3, 3]


@pytest.mark.parametrize("path", ["query", "query/histogram", "query/export"])
def test_who_goes_away_is_not_worked_for(path: str) -> None:
    async def main() -> bool:
        pipeline = FakePipeline()
        pipeline.hangs = asyncio.Event()
        app = create_app(NodePorts(view=FakeNode(), pipeline=pipeline), is_loopback=False)
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/api/v1/{path}",
            "query_string": b"channel=a",
            "headers": [],
            "http_version": "1.1",
        }
        messages = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            assert pipeline.hangs is not None
            await pipeline.hangs.wait()
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            return

        await app(scope, receive, send)
        return pipeline.was_cancelled

    assert asyncio.run(main())


def test_reports() -> None:
    pipeline = FakePipeline()
    answer = ask("/api/v1/report?last=2h&channel=uav/%23", pipeline)
    assert msgspec.json.decode(answer.content, type=Report) == sample_report()
    assert pipeline.asked == [{"length_ms": 7_200_000, "channel": "uav/#"}]
    assert ask("/api/v1/report?since=2026-01-01&until=2026-01-02", pipeline).status_code == 200
    assert pipeline.asked[1]["length_ms"] == 86_400_000
    for query, place in (
        ("last=long", "last"),
        ("since=x", "since"),
        ("since=now&until=-1h", "since"),
        ("channel=a%23", "channel"),
    ):
        answer = ask(f"/api/v1/report?{query}")
        assert (answer.status_code, answer.json()["place"]) == (400, place)


def a_journal(folder: Path, records: list[bytes], **options: Any) -> Path:
    journal = Journal.open(folder / "journal", JournalOptions(**options))
    for record in records:
        journal.append([record])
        journal.flush()
    journal.retire().result()
    journal.close()
    return folder / "journal"


def test_the_journal_is_read_piece_by_piece(tmp_path: Path) -> None:
    records = [str(number).encode() * 10 for number in range(100)]
    folder = a_journal(tmp_path, records)
    extent = ask("/api/v1/journal", journal=folder).json()
    assert extent == {"node": "alpha", "first_offset": 0, "next_offset": 100}
    read: list[bytes] = []
    offset = 0
    while offset < 100:
        answer = ask(f"/api/v1/journal/records?offset={offset}&max_bytes=300", journal=folder)
        assert answer.headers["content-type"] == MSGPACK
        part = decode_part(answer.content)
        assert part.end_offset == 100
        assert part.next_offset > offset
        for batch in part.batches:
            sizes = batch.lengths
            ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
            read += [batch.data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        offset = part.next_offset
    assert read == records
    part = decode_part(ask("/api/v1/journal/records?offset=100", journal=folder).content)
    assert (part.batches, part.next_offset) == ((), 100)
    answer = ask("/api/v1/journal/records?offset=101", journal=folder)
    assert (answer.status_code, answer.json()["place"]) == (400, "offset")


def test_what_the_journal_has_no_more(tmp_path: Path) -> None:
    options = {"segment_bytes": 65_536, "retention": Retention(max_bytes=100_000)}
    folder = a_journal(tmp_path, [bytes(30_000)] * 20, **options)
    first = Reader(folder).extent().first_offset
    assert first > 0
    part = decode_part(ask("/api/v1/journal/records?offset=0", journal=folder).content)
    assert (part.retired, part.next_offset, part.batches) == (first, first, ())


def test_the_journal_is_for_those_who_may_see_everything(tmp_path: Path) -> None:
    folder = a_journal(tmp_path, [b"secret"])
    for path in ("/api/v1/journal", "/api/v1/journal/records?offset=0"):
        for user, code in (("ann", 403), ("reader", 403), ("root", 200)):
            answer = ask(path, journal=folder, user=user, users=(ANN, READER, ROOT))
            assert answer.status_code == code
            assert (b"secret" in answer.content) <= (code == 200)


def test_a_node_that_keeps_nothing_has_no_journal() -> None:
    assert ask("/api/v1/journal").status_code == 404


def test_what_was_measured() -> None:
    now_ms = wall_ms()
    registry = MeasurementRegistry()
    registry.put("channel", "uav/1", "rate_hz", 2.5, at_ms=now_ms)
    registry.put("channel", "b", "rate_hz", 3.5, at_ms=now_ms)
    assert len(ask("/api/v1/registry?kind=channel", registry=registry).json()["values"]) == 2
    path = "/api/v1/registry?kind=channel&subject=uav/%23"
    assert ask(path, registry=registry).json()["values"] == [
        {"kind": "channel", "subject": "uav/1", "name": "rate_hz", "value": 2.5, "at_ms": now_ms}
    ]
    assert ask("/api/v1/registry?kind=channel&subject=%23a").status_code == 400


def test_openapi_describes_them(tmp_path: Path) -> None:
    answer = ask("/openapi.json", journal=a_journal(tmp_path, []))
    document = answer.json()
    for path, name in (
        ("query", "QueryPage"),
        ("report", "Report"),
        ("registry", "MeasuredValueList"),
        ("journal", "JournalExtent"),
    ):
        described = document["paths"][f"/api/v1/{path}"]["get"]["responses"]["200"]
        reference = described["content"]["application/json"]["schema"]["$ref"]
        assert reference.endswith(f"/{name}")
    part = document["paths"]["/api/v1/journal/records"]["get"]["responses"]["200"]
    assert list(part["content"]) == [MSGPACK]
    for reference in re.findall(r'"#/components/schemas/(\w+)"', answer.text):
        assert reference in document["components"]["schemas"]


def test_the_attributes_of_kept_events_and_those_that_none_has() -> None:
    pipeline = FakePipeline(found(b"a", ("altitude", "3")), found(b"b", ("altitude", "4")))
    path = "/api/v1/query/attributes?channel=uav/%23&where=altitute>3+AND+altitude>1&since=-1min"
    answer = ask(path, pipeline, user="ann", users=(ANN,)).json()
    assert (answer["events"], answer["unknown"]) == (2, ["altitute"])
    assert answer["hint"] == (
        "none of the newest 2 events of uav/# in this time has an attribute 'altitute' "
        "(is 'altitude' meant?); known: altitude"
    )
    (asked,) = pipeline.asked
    assert (asked["ask"].where, asked["ask"].limit, asked["rows"]) == ("", 100, 100)
    known = ask("/api/v1/query/attributes?channel=uav/1&where=altitude>3", pipeline).json()
    assert (known["unknown"], known["hint"]) == ([], "")
    nothing = ask("/api/v1/query/attributes?channel=uav/1&where=x>3", FakePipeline()).json()
    assert (nothing["events"], nothing["unknown"], nothing["hint"]) == (0, [], "")


def test_a_histogram_comes_in_parts() -> None:
    pipeline = FakePipeline()
    path = "/api/v1/query/histogram?channel=uav/%23&where=a>1&since=-1min&buckets=2"
    first = ask(path, pipeline, user="ann", users=(ANN,)).json()
    assert (first["counts"], first["width_ms"], first["files_known"]) == ([0, 3], 30_000, 2)
    again = f"/api/v1/query/histogram?buckets=2&within_ms=200&cursor={first['cursor']}"
    last = ask(again, pipeline, user="ann", users=(ANN,)).json()
    assert (last["counts"], last["cursor"], last["first"]) == ([2, 0], None, first["first"])
    asked = [each["ask"] for each in pipeline.asked]
    assert asked[0] == asked[1]  # -1min is as it was
    assert asked[0].until_ms - asked[0].since_ms == 60_000
    assert [(each["cursor"], each["within"]) for each in pipeline.asked] == [
        ("", 1_000),
        ("half", 200),
    ]


@pytest.mark.parametrize(
    ("path", "status", "place"),
    [
        ("query/histogram", 400, "channel"),
        ("query/histogram?channel=sea/%23", 403, "channel"),
        ("query/histogram?channel=uav/1&where=a>", 400, "where"),
        ("query/histogram?channel=uav/1&buckets=501", 400, "buckets"),
        ("query/histogram?channel=uav/1&within_ms=1", 400, "within_ms"),
        ("query/histogram?cursor=nonsense", 400, "cursor"),
        ("query?channel=uav/1&within_ms=20000", 400, "within_ms"),
        ("query/export?channel=sea/%23", 403, "channel"),
        ("query/export?channel=uav/1&format=xls", 400, "format"),
        ("query/export?channel=uav/1&limit=0", 400, "limit"),
        ("query/export?channel=uav/1&cursor=nonsense", 400, "cursor"),
    ],
)
def test_overviews_that_are_refused(path: str, status: int, place: str) -> None:
    answer = ask(f"/api/v1/{path}", user="ann", users=(ANN,))
    assert (answer.status_code, answer.json()["place"]) == (status, place)


def test_a_file_comes_as_one_body() -> None:
    pipeline = FakePipeline()
    path = "/api/v1/query/export?channel=uav/%23&format=csv&since=-1h&order=oldest&limit=9"
    answer = ask(path, pipeline)
    assert answer.content == b"0\r\n1\r\n2\r\n"
    assert answer.headers["content-type"].startswith("text/csv")
    first, second, third = pipeline.asked
    assert (first["ask"].channel, first["ask"].limit, first["format"]) == ("uav/#", 9, "csv")
    assert second["ask"] == third["ask"] == first["ask"]
    assert [each["cursor"] for each in pipeline.asked] == ["", "1", "2"]
    assert [each["columns"] for each in pipeline.asked] == [{}, {"n": "integer"}, {"n": "integer"}]


def test_a_file_of_arrow_or_parquet() -> None:
    answer = ask("/api/v1/query/export?channel=uav/%23&format=arrow", FakePipeline())
    with pa.ipc.open_stream(answer.content) as stream:
        assert stream.read_all().to_pydict() == {"n": [0, 1, 2]}
    answer = ask("/api/v1/query/export?channel=uav/%23&format=parquet", FakePipeline())
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    table = pyarrow.parquet.read_table(pa.BufferReader(answer.content))
    assert table.to_pydict() == {"n": [0, 1, 2]}


def test_a_file_that_fails_is_not_complete() -> None:
    """The first part may be refused; after it, the body breaks off."""

    async def main() -> list[Any]:
        pipeline = FakePipeline(fails=PipelineError("failed", "gone"))
        app = create_app(NodePorts(view=FakeNode(), pipeline=pipeline), is_loopback=False)
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/v1/query/export",
            "query_string": b"channel=a",
            "headers": [],
            "http_version": "1.1",
        }
        messages = [{"type": "http.request", "body": b"", "more_body": False}]
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.sleep(3_600)
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent

    start, body = asyncio.run(main())
    assert start["status"] == 200
    assert body["more_body"]


def test_the_file_of_an_event_is_for_those_who_may_see_it() -> None:
    pipeline = FakePipeline(found(channel="home/bob/1"))
    path = f"/api/v1/query/export?event={event_id(NUMBER)}&format=csv"
    assert ask(path, pipeline, user="ann", users=(ANN,)).status_code == 404
    assert ask(path, pipeline, user="root", users=(ROOT,)).status_code == 200
    assert pipeline.asked[-1]["ask"].channel == "home/bob/1"
