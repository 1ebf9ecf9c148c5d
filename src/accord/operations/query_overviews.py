"""More about the events that a query finds: how many over time, and their attributes.

Both go through the data pipeline, like `accord.operations.query`, and check rights as it does.
"""

from __future__ import annotations

import asyncio
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

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
from accord.operations.query_events import iso_time, shown_event

if TYPE_CHECKING:
    from accord.core.queries.messages import HistogramPart, Page

_SAMPLE: Final = 100  # events whose attributes count as known
_SAMPLE_BYTES: Final = 1 << 18
_MAX_NAMES: Final = 200
_LISTED: Final = 12


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


class AttributeList(Struct, frozen=True, kw_only=True):
    """The attributes of the newest `events` kept events, and those of a predicate that none has.

    `hint` says so in a sentence; it is empty where the predicate reads no unknown attribute.
    """

    events: int
    attributes: tuple[str, ...]
    unknown: tuple[str, ...]
    hint: str


class ListAttributes(Request[AttributeList], frozen=True, kw_only=True, tag="list"):
    """Selects events as a query does; the predicate is compared, and does not select."""

    channel: Annotated[Text, Meta(description="A filter of channels.", examples=["demo/feeder/+"])]
    where: Annotated[Text, Meta(description="A predicate.", examples=["load_mw > 4"])] = ""
    since: Moment | None = None
    until: Moment | None = None


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


@operation("attributes", "GET /query/attributes", long=True, max_bytes=MAX_BODY)
async def list_attributes(node: NodePorts, ask: ListAttributes, asker: Asker) -> AttributeList:
    """Which attributes kept events have, and which attributes of a predicate none of them has."""
    find = Find(
        channel=ask.channel,
        where=ask.where or None,
        since=ask.since,
        until=ask.until,
        limit=_SAMPLE,
    )
    query = await asyncio.to_thread(parse_query, find, now_ms=node.now_ms())
    query = permitted(replace(query, where=""), asker.rights, asker.user or "an anonymous client")
    found = await pipeline_of(node).page(
        query,
        cursor="",
        rows=_SAMPLE,
        bytes_=_SAMPLE_BYTES,
        within_ms=1_000,
        importance=query_importance(node, asker, query.channel),
    )
    return await asyncio.to_thread(_attributes, ask, found)


def _attributes(ask: ListAttributes, found: Page) -> AttributeList:
    from accord.core.predicates.predicate import parse  # noqa: PLC0415 (it is slow)
    from accord.core.predicates.tree import Attribute, walk  # noqa: PLC0415

    known = sorted({name for each in found.events for name in shown_event(each).attributes})
    nodes = walk(parse(ask.where).tree) if ask.where else ()
    wanted = {each.name for each in nodes if isinstance(each, Attribute)}
    unknown = tuple(sorted(wanted.difference(known))) if found.events else ()
    return AttributeList(
        events=len(found.events),
        attributes=tuple(known[:_MAX_NAMES]),
        unknown=unknown,
        hint=_hint(ask.channel, len(found.events), known, unknown[0]) if unknown else "",
    )


def _hint(channel: str, events: int, known: list[str], unknown: str) -> str:
    of = f"the newest {events} events" if events > 1 else "the one event"
    none = f"none of {of} of {channel} in this time has an attribute {unknown!r}"
    close = get_close_matches(unknown, known, 1)
    meant = f" (is {close[0]!r} meant?)" if close else ""
    listed = ", ".join(known[:_LISTED]) + (", …" if len(known) > _LISTED else "")
    return f"{none}{meant}; known: {listed or 'none'}"


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
