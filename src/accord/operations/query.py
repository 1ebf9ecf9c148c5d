"""Kept events and reports of delivered quality, from the data pipeline; the journal's records.

A user who may subscribe to channels may query their kept events. Over MQTT the events come as
messages of their own, over HTTP as a page. The node is stateless between two pages: the cursor is
self-contained, and rights are checked again for each.

Clients import this module for the requests: what only a node needs is imported late.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import EventError, PredicateError
from accord.core.model.units import DEFAULT_IMPORTANCE, NOW, parse_time
from accord.core.monitoring.ledger import event_number
from accord.core.queries.journal_http import (
    MSGPACK,
    JournalChunk,
    JournalExtent,
    JournalGap,
    PartBatch,
    encode_part,
)
from accord.core.queries.messages import (
    MAX_TOKEN,
    EngineName,
    EventQuery,
    Page,
    PageToken,
    ReadBy,
    decode_token,
    encode_token,
)
from accord.core.queries.report import Report
from accord.core.router.rights import Rights
from accord.operations.operation import Acknowledged, Asker, Request, RequestError, Right, operation
from accord.operations.ports import NodePorts, PipelinePort, need
from accord.operations.predicates import predicate_problem
from accord.operations.query_events import QueryEvent, iso_time, shown_events
from accord.operations.visibility import check_report, visible_report

ANY: Final = "#"
MAX_LIMIT: Final = 1 << 40
MAX_PAGE: Final = 1_000
MAX_BODY: Final = 1_000_000
PAGE_BYTES: Final = 4 << 20
MAX_OFFSET: Final = (1 << 63) - 1
MAX_CHUNK: Final = 16 << 20

Text = Annotated[str, Meta(max_length=65_535)]
Moment = Annotated[
    str, Meta(max_length=100, description="Such as -24h, now, 2026-11-16T07:30Z.", examples=["-1h"])
]
AsOf = Annotated[
    str,
    Meta(
        max_length=100,
        description="The archive as it was, without what was not archived then: a version of its "
        "table of events, or a time, of the last hours.",
        examples=["-1h"],
    ),
]
PageSize = Annotated[int, Meta(description=f"Events of a page, 1 to {MAX_PAGE}.")]
LEAST_WITHIN_MS: Final = 100
MOST_WITHIN_MS: Final = 10_000
Within = Annotated[
    int,
    Meta(
        description="A part that takes longer ends early, with a cursor; "
        f"{LEAST_WITHIN_MS} to {MOST_WITHIN_MS}."
    ),
]


class QueryPage(Struct, frozen=True, kw_only=True):
    """A page of events; with a `cursor` there are more, which it asks for.

    The rest says what finding them took: files of the archive opened, files passed over, bytes of
    those opened, records of the journal that were not archived yet, milliseconds, and what read the
    archive (`tail` if nothing of it was needed). All events up to `reached` were looked at; the
    cursor continues from there.
    """

    events: tuple[QueryEvent, ...]
    cursor: str | None
    files: int
    files_skipped: int
    bytes: int
    tail: int
    took_ms: int
    engine: ReadBy = "tail"
    reached: str | None = None


class PageEnd(Struct, frozen=True, kw_only=True):
    """Ends a page whose `count` events came as messages of their own: see `QueryPage`."""

    count: int
    cursor: str | None
    files: int
    files_skipped: int
    bytes: int
    tail: int
    took_ms: int
    engine: ReadBy = "tail"


class Find(Request[QueryPage], frozen=True, kw_only=True, tag="find"):
    """Selects events by filter, content and time; or one event by its ID; or by a cursor."""

    channel: Annotated[
        Text | None, Meta(description="A filter of channels.", examples=["demo/feeder/+"])
    ] = None
    where: Annotated[Text | None, Meta(description="A predicate.", examples=["load_mw > 4"])] = None
    xpath: Text | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int | None, Meta(description="Events of all pages at most.")] = None
    order: Literal["newest", "oldest"] = "newest"
    event: Annotated[Text | None, Meta(description="The ID of one event.")] = None
    engine: Annotated[
        EngineName | None, Meta(description="What reads the archive; chosen if not given.")
    ] = None
    as_of: AsOf | None = None
    cursor: Annotated[
        str, Meta(max_length=MAX_TOKEN, description="Of the page before; other fields are ignored.")
    ] = ""
    page: PageSize = 100
    within_ms: Within = MOST_WITHIN_MS


class Next(Request[QueryPage], frozen=True, kw_only=True, tag="next"):
    """Request the page after the one that returned this cursor."""

    cursor: Annotated[str, Meta(max_length=MAX_TOKEN)]
    page: PageSize = 100


class Cancel(Request[Acknowledged], frozen=True, kw_only=True, tag="cancel"):
    """Cancel the query with the same correlation data."""


class GetReport(Request[Report], frozen=True, kw_only=True, tag="get"):
    last: Annotated[str, Meta(max_length=100, description="Such as 1h.", examples=["1h"])] = "1h"
    since: Moment | None = None
    until: Moment | None = None
    channel: Annotated[Text, Meta(description="A filter of channels.")] = ANY


class GetJournal(Request[JournalExtent], frozen=True, tag="get"):
    pass


class ReadJournal(Request[JournalChunk], frozen=True, kw_only=True, tag="read"):
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET, description="Of the first record.")]
    max_bytes: Annotated[
        int, Meta(ge=1, le=MAX_CHUNK, description="Of records at most, or one record.")
    ] = 1 << 20


def pipeline_of(node: NodePorts) -> PipelinePort:
    return need(node.pipeline, "data pipeline")


@operation("query", "GET /query", streams=PageEnd, long=True, max_bytes=MAX_BODY)
async def find(node: NodePorts, ask: Find, asker: Asker) -> QueryPage:
    """Kept events of a channel filter, by content and time; or the one of this ID."""
    query, cursor = await read_question(ask, now_ms=node.now_ms())
    query = permitted(query, asker.rights, asker.user or "an anonymous client")
    found = await pipeline_of(node).page(
        query,
        cursor=cursor,
        rows=ask.page,
        bytes_=PAGE_BYTES,
        within_ms=ask.within_ms,
        importance=query_importance(node, asker, query.channel),
    )
    # In a thread: a page may have a thousand events with XML.
    return await asyncio.to_thread(_page, query, found, asker.rights)


@operation("query", mqtt_only="over HTTP, query.find takes the cursor", streams=PageEnd)
async def find_next(node: NodePorts, ask: Next, asker: Asker) -> QueryPage:
    """The page after the one that returned this cursor."""
    page: QueryPage = await find(node, Find(cursor=ask.cursor, page=ask.page), asker)
    return page


@operation("query", mqtt_only="over HTTP, disconnecting cancels a query", streams=Acknowledged)
def cancel(_node: NodePorts, _ask: Cancel, _asker: Asker) -> Acknowledged:
    """Cancel the query with the same correlation data."""
    return Acknowledged()


@operation("report", "GET /report", Right.STATISTICS, long=True)
async def get_report(node: NodePorts, ask: GetReport, asker: Asker) -> Report:
    """Delivered quality per channel, client and node; of the `last` hour, or since … until."""
    if problem := problem_with_filter(ask.channel):
        raise RequestError(400, problem, "channel")
    check_report(ask.channel, asker)
    now_ms = node.now_ms()
    until_ms = _required_moment(ask.until or NOW, "until", now_ms)
    if ask.since is None:
        since_ms = _ago(ask.last, until_ms)
    else:
        since_ms = _required_moment(ask.since, "since", now_ms)
    if since_ms >= until_ms:
        raise RequestError(400, "expected a time before the end of the report", "since")
    body = await pipeline_of(node).report(
        since_ms=since_ms,
        until_ms=until_ms,
        channel=ask.channel,
        importance=query_importance(node, asker, ask.channel),
    )
    return visible_report(await asyncio.to_thread(msgspec.json.decode, body, type=Report), asker)


@operation("journal", "GET /journal", Right.EVERYTHING)
async def get_journal(node: NodePorts, _ask: GetJournal, _asker: Asker) -> JournalExtent:
    """Which records of the journal can be read now."""
    from accord.journal.errors import JournalError  # noqa: PLC0415
    from accord.journal.reader import Reader  # noqa: PLC0415

    try:
        extent = await asyncio.to_thread(Reader(_journal(node)).extent)
    except JournalError as error:
        raise RequestError(503, str(error), retry_s=1) from None
    return JournalExtent(
        node=node.view.name, first_offset=extent.first_offset, next_offset=extent.next_offset
    )


@operation(
    "journal", "GET /journal/records", Right.EVERYTHING, media={MSGPACK: encode_part}, json=False
)
async def read_journal(node: NodePorts, ask: ReadJournal, _asker: Asker) -> JournalChunk:
    """Records from `offset` on; over HTTP as msgpack, see `accord.core.queries.journal_http`."""
    from accord.journal.errors import JournalError  # noqa: PLC0415

    folder, name = _journal(node), node.view.name
    try:
        return await asyncio.to_thread(_chunk, folder, name, ask.offset, ask.max_bytes)
    except JournalError as error:
        raise RequestError(400, str(error), "offset") from None


async def read_question(ask: Find | Next, *, now_ms: int) -> tuple[EventQuery, str]:
    """The query, and the position of its cursor. In a thread: a predicate may be long."""
    if not 1 <= ask.page <= MAX_PAGE:
        raise RequestError(400, f"expected 1 to {MAX_PAGE}, got {ask.page}", "page")
    if isinstance(ask, Find):
        check_within(ask.within_ms)
    if ask.cursor:
        return await asyncio.to_thread(read_cursor, ask.cursor)
    if isinstance(ask, Next):
        raise RequestError(400, "expected the cursor of a page", "cursor")
    return await asyncio.to_thread(parse_query, ask, now_ms=now_ms), ""


def check_within(within_ms: int) -> None:
    if not LEAST_WITHIN_MS <= within_ms <= MOST_WITHIN_MS:
        problem = f"expected {LEAST_WITHIN_MS} to {MOST_WITHIN_MS}, got {within_ms}"
        raise RequestError(400, problem, "within_ms")


def permitted(query: EventQuery, rights: Rights | None, who: str) -> EventQuery:
    """The query without denied channels, whatever a cursor contains; raises RequestError."""
    if rights is None:
        return replace(query, without=())
    if not is_single_event(query) and not rights.may_subscribe(query.channel):
        raise RequestError(403, f"{who} may not subscribe to {query.channel[:200]!r}", "channel")
    return replace(query, without=rights.denied.subscribe)


def parse_query(question: Find, *, now_ms: int) -> EventQuery:
    """Raises RequestError with the location of the problem if the request is invalid."""
    since_ms = _moment(question.since, "since", now_ms)
    until_ms = _moment(question.until, "until", now_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise RequestError(400, "expected a time before `until`", "since")
    if question.limit is not None and not 1 <= question.limit <= MAX_LIMIT:
        raise RequestError(400, f"expected 1 to {MAX_LIMIT}, got {question.limit}", "limit")
    as_of_version, as_of_ms = _as_of(question.as_of, now_ms)
    return validate(
        EventQuery(
            channel=_channel(question),
            where=question.where or "",
            xpath=question.xpath or "",
            since_ms=since_ms,
            until_ms=until_ms,
            number=_number(question.event),
            is_newest_first=question.order == "newest",
            limit=question.limit,
            engine=question.engine,
            as_of_version=as_of_version,
            as_of_ms=as_of_ms,
        )
    )


def read_cursor(text: str) -> tuple[EventQuery, str]:
    """The query of a page's cursor, and its position; raises RequestError if invalid."""
    found = read_token(text)
    return found.query, found.cursor


def read_token(text: str) -> PageToken:
    try:
        token = decode_token(text)
    except ValueError as error:
        raise RequestError(400, str(error), "cursor") from None
    ask = token.query
    # Foreign input: fields that this node never writes make it invalid.
    is_ours = not ask.from_offset and ask.before_offset is None
    is_bounded = 0 < (ask.limit or 1) <= MAX_LIMIT
    if problem_with_filter(ask.channel) or not (is_ours and is_bounded):
        raise RequestError(400, "expected the cursor of a page, just as it was given", "cursor")
    validate(ask)
    return token


def is_single_event(ask: EventQuery) -> bool:
    """Whether the query is for one event ID; rights are checked when its channel is known."""
    return ask.number is not None and ask.channel == ANY


def validate(ask: EventQuery) -> EventQuery:
    """`ask` with its predicate validated; raises RequestError."""
    from accord.core.predicates.predicate import parse, parse_xpath  # noqa: PLC0415

    if is_single_event(ask) and (ask.where or ask.xpath):
        # Otherwise predicates would reveal the content of events the client may not see.
        problem = "expected a filter of channels, such as uav/#, with a predicate"
        raise RequestError(400, problem, "channel")
    if ask.where and ask.xpath:
        raise RequestError(400, "expected either where or xpath, got both", "xpath")
    for place, text, read in (("where", ask.where, parse), ("xpath", ask.xpath, parse_xpath)):
        if text:
            try:
                read(text)
            except PredicateError as error:
                raise predicate_problem(error, place) from None
    return ask


def _channel(question: Find) -> str:
    if question.channel is None:
        if question.event is None:
            raise RequestError(400, "expected a filter of channels, such as uav/#", "channel")
        return ANY
    if problem := problem_with_filter(question.channel):
        raise RequestError(400, problem, "channel")
    return question.channel


def _required_moment(text: str, place: str, now_ms: int) -> int:
    try:
        return parse_time(text, now_ms=now_ms)
    except ValueError as error:
        raise RequestError(400, str(error), place) from None


def _moment(text: str | None, place: str, now_ms: int) -> int | None:
    return None if text is None else _required_moment(text, place, now_ms)


def _as_of(text: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """The version, or the time."""
    if text is not None and text.isascii() and text.isdigit():
        return min(int(text), MAX_OFFSET), None
    return None, _moment(text, "as_of", now_ms)


def _ago(text: str, now_ms: int) -> int:
    try:
        return parse_time(f"-{text.strip().removeprefix('-')}", now_ms=now_ms)
    except ValueError:
        problem = f"expected a time such as 1h, 30min or 7d, got {text[:60]!r}"
        raise RequestError(400, problem, "last") from None


def _number(event: str | None) -> int | None:
    try:
        return None if event is None else event_number(event)
    except EventError as error:
        raise RequestError(400, error.problem, "event") from None


def query_importance(node: NodePorts, asker: Asker, channel: str) -> int:
    """The importance that policies grant to the asker's queries."""
    if node.policies is None:
        return DEFAULT_IMPORTANCE
    from accord.core.policy.policies import Entity  # noqa: PLC0415

    groups = node.groups_of(asker.user) if asker.user else ()
    entity = Entity("", asker.user, groups, node.view.name)
    return node.policies.query_grant(channel, entity).importance


def _page(ask: EventQuery, page: Page, rights: Rights) -> QueryPage:
    events = page.events
    if ask.number is not None:
        events = tuple(each for each in events if rights.may_subscribe(each.channel))
    return QueryPage(
        events=shown_events(events),
        cursor=encode_token(ask, page.cursor) or None,
        files=page.files,
        files_skipped=page.files_skipped,
        bytes=page.bytes,
        tail=page.tail,
        took_ms=page.took_ms,
        engine=page.engine,
        reached=None if page.reached_ms is None else iso_time(page.reached_ms),
    )


def _journal(node: NodePorts) -> Path:
    return need(node.journal, "journal: nothing is kept on disk")


def _chunk(folder: Path, node: str, offset: int, max_bytes: int) -> JournalChunk:
    from accord.journal.reader import Reader, Retired  # noqa: PLC0415
    from accord.journal.record import Batch  # noqa: PLC0415

    reader = Reader(folder)
    end_offset = reader.extent().next_offset
    batches: list[PartBatch] = []
    gaps: list[JournalGap] = []
    next_offset = offset
    retired = None
    for found in reader.read(offset, max_bytes=max_bytes):
        if isinstance(found, Batch):
            data = bytes(found.data)
            batches.append(PartBatch(found.first_offset, found.time_ms, found.lengths, data))
            next_offset = found.end_offset
        elif isinstance(found, Retired):
            next_offset = retired = found.first_available
        else:
            gaps.append(JournalGap(found.offset, found.next_offset, found.why))
            next_offset = found.next_offset
    return JournalChunk(
        node=node,
        next_offset=next_offset,
        end_offset=end_offset,
        batches=tuple(batches),
        gaps=tuple(gaps),
        retired=retired,
    )
