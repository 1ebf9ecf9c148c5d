"""More about the events that a query finds: how many there are over time, and all as a file.

Both go through the data pipeline, like `accord.operations.query`, and check rights as it does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct

from accord.core.queries.histogram import MAX_BUCKETS
from accord.core.queries.messages import MAX_TOKEN, EventQuery, encode_token
from accord.operations.operation import Asker, Request, RequestError, operation
from accord.operations.ports import NodePorts
from accord.operations.query import (
    MAX_BODY,
    Find,
    Moment,
    Text,
    Within,
    check_within,
    parse_query,
    permitted,
    pipeline_of,
    query_importance,
    read_cursor,
)
from accord.operations.query_events import iso_time

if TYPE_CHECKING:
    from accord.core.queries.messages import HistogramPart

MAX_EXPORT: Final = 50_000
EXPORT_BYTES: Final = 16 << 20


class EventCounts(Struct, frozen=True, kw_only=True):
    """How many events there are from `first` on, in buckets of `width_ms`; a part of the answer.

    Events from `read` on are counted now. With a `cursor` there are more: it asks for the next part
    (older times), whose counts are to be added to these. `files` of the archive were opened,
    `files_known` were counted by their statistics; `tail` records were not archived yet.
    """

    first: str
    width_ms: int
    counts: tuple[int, ...]
    read: str
    cursor: str | None
    files: int
    files_known: int
    bytes: int
    tail: int
    took_ms: int


class EventFile(Struct, frozen=True, kw_only=True):
    """A file of `events` events in `body`, as base64; not complete if more were found than fit."""

    format: Literal["csv", "json", "parquet"]
    events: int
    is_complete: bool
    body: bytes


class CountEvents(Request[EventCounts], frozen=True, kw_only=True, tag="count"):
    """Selects events as a query does; or by the cursor of a part."""

    channel: Annotated[
        Text | None, Meta(description="A filter of channels.", examples=["demo/feeder/+"])
    ] = None
    where: Annotated[Text | None, Meta(description="A predicate.", examples=["load_mw > 4"])] = None
    xpath: Text | None = None
    since: Moment | None = None
    until: Moment | None = None
    buckets: Annotated[int, Meta(description=f"At most so many, 1 to {MAX_BUCKETS}.")] = 120
    cursor: Annotated[
        str, Meta(max_length=MAX_TOKEN, description="Of the part before; others are ignored.")
    ] = ""
    within_ms: Within = 1_000


class ExportEvents(Request[EventFile], frozen=True, kw_only=True, tag="export"):
    """Selects events as a query does."""

    channel: Annotated[Text, Meta(description="A filter of channels.", examples=["demo/feeder/+"])]
    where: Annotated[Text | None, Meta(description="A predicate.", examples=["load_mw > 4"])] = None
    xpath: Text | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int, Meta(description=f"Events at most, 1 to {MAX_EXPORT}.")] = 10_000
    order: Literal["newest", "oldest"] = "newest"
    format: Annotated[
        Literal["csv", "json", "parquet"], Meta(description="JSON has a line for each event.")
    ] = "json"


@operation("histogram", "GET /query/histogram", long=True, max_bytes=MAX_BODY)
async def count_events(node: NodePorts, ask: CountEvents, asker: Asker) -> EventCounts:
    """How many kept events a query has over time: in parts, the newest time first."""
    if not 1 <= ask.buckets <= MAX_BUCKETS:
        raise RequestError(400, f"expected 1 to {MAX_BUCKETS}, got {ask.buckets}", "buckets")
    check_within(ask.within_ms)
    if ask.cursor:
        query, cursor = await asyncio.to_thread(read_cursor, ask.cursor)
    else:
        find = Find(
            channel=ask.channel,
            where=ask.where,
            xpath=ask.xpath,
            since=ask.since,
            until=ask.until or "now",
        )
        query, cursor = await asyncio.to_thread(parse_query, find, now_ms=node.now_ms()), ""
    query = permitted(query, asker.rights, asker.user or "an anonymous client")
    if query.until_ms is None:
        raise RequestError(400, "expected the cursor of a part, just as it was given", "cursor")
    found = await pipeline_of(node).histogram(
        query,
        until_ms=query.until_ms,
        cursor=cursor,
        buckets=ask.buckets,
        within_ms=ask.within_ms,
        importance=query_importance(node, asker, query.channel),
    )
    return _histogram(query, found)


@operation("export", "GET /query/export", long=True, max_bytes=MAX_BODY)
async def export_events(node: NodePorts, ask: ExportEvents, asker: Asker) -> EventFile:
    """Kept events as a file: CSV, JSON lines or Parquet, as `accord query --output` writes it."""
    if not 1 <= ask.limit <= MAX_EXPORT:
        raise RequestError(400, f"expected 1 to {MAX_EXPORT}, got {ask.limit}", "limit")
    find = Find(
        channel=ask.channel,
        where=ask.where,
        xpath=ask.xpath,
        since=ask.since,
        until=ask.until,
        order=ask.order,
    )
    query = await asyncio.to_thread(parse_query, find, now_ms=node.now_ms())
    query = permitted(query, asker.rights, asker.user or "an anonymous client")
    found = await pipeline_of(node).export(
        query,
        format_=ask.format,
        rows=ask.limit,
        bytes_=EXPORT_BYTES,
        importance=query_importance(node, asker, query.channel),
    )
    return EventFile(
        format=ask.format, events=found.events, is_complete=found.is_complete, body=found.body
    )


def _histogram(query: EventQuery, found: HistogramPart) -> EventCounts:
    return EventCounts(
        first=iso_time(found.first_ms),
        width_ms=found.width_ms,
        counts=found.counts,
        read=iso_time(found.read_ms),
        cursor=encode_token(query, found.cursor) or None,
        files=found.files,
        files_known=found.files_known,
        bytes=found.bytes,
        tail=found.tail,
        took_ms=found.took_ms,
    )
