"""Messages of the query protocol: requests for pages of kept events, and the end of a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from accord.client.errors import QueryError
from accord.client.resume_point import ago_text
from accord.core.model.channels import problem_with_filter
from accord.core.model.times import parse_time
from accord.core.monitoring.ledger import event_id, event_number

Moment = str | datetime | timedelta


class QueryStats(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a query so far.

    `files` of the archive were opened for a page, `files_skipped` were ruled out beforehand;
    `bytes` is the size of those opened, and `tail` counts events that were scanned because they
    were not archived yet: each is the maximum over the pages. `missing` are events withheld by
    policies or by a slow link.
    """

    events: int = 0
    pages: int = 0
    files: int = 0
    files_skipped: int = 0
    bytes: int = 0
    tail: int = 0
    took_ms: int = 0
    missing: int = 0


class PageEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The message after the events of a page."""

    ok: bool
    count: int = 0
    cursor: str | None = None
    files: int = 0
    files_skipped: int = 0
    bytes: int = 0
    tail: int = 0
    took_ms: int = 0
    error: str = ""
    place: str = ""


class Find(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="find", tag_field="do"
):
    """Request for the first page."""

    channel: str
    where: str | None = None
    xpath: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    order: str = "newest"
    event: str | None = None
    page: int | None = None


class Next(msgspec.Struct, frozen=True, tag="next", tag_field="do"):
    """Request for the page after a cursor."""

    cursor: str
    page: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel", tag_field="do"):
    """Cancels the page requested with the same correlation data."""


def read_page_end(payload: bytes) -> PageEnd:
    """Decode a page end; raises QueryError if the node refused or the reply is malformed."""
    try:
        end = msgspec.json.decode(payload, type=PageEnd)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise QueryError(f"the server's answer can't be understood: {error}") from None
    if not end.ok:
        raise QueryError(end.error or "the server gives no reason", end.place)
    return end


def check_find(find: Find, now_ms: int) -> Find:
    """The request with its event ID in the nodes' form; raises ValueError if it is invalid."""
    if problem := problem_with_filter(find.channel):
        raise ValueError(f"channel: {problem}")
    if find.where is not None and find.xpath is not None:
        raise ValueError("expected one of where and xpath, got both")
    for name, low in (("limit", 1), ("page", 1)):
        value = getattr(find, name)
        if value is not None and value < low:
            raise ValueError(f"{name}: expected at least {low}, got {value}")
    for name in ("since", "until"):
        text = getattr(find, name)
        if text is not None:
            _check_moment(name, text, now_ms)
    if find.event is None:
        return find
    return msgspec.structs.replace(find, event=event_id(event_number(find.event)))


def moment_text(moment: Moment | None, name: str, now_ms: int) -> str | None:
    """The text form that nodes read; a duration means that long ago.

    Raises ValueError that states what was expected.
    """
    if moment is None:
        return None
    if isinstance(moment, timedelta):
        return ago_text(abs(moment) // timedelta(milliseconds=1))
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(f"{name}: expected a time with its time zone, got one without")
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    _check_moment(name, moment, now_ms)
    return moment


def _check_moment(name: str, text: str, now_ms: int) -> None:
    try:
        parse_time(text, now_ms=now_ms)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def encode_question(question: Find | Next | Cancel) -> bytes:
    return msgspec.json.encode(question)


def add_page(stats: QueryStats, end: PageEnd, came: int) -> QueryStats:
    """`stats` after one more page, of which `came` events were received."""
    return QueryStats(
        pages=stats.pages + 1,
        files=max(stats.files, end.files),
        files_skipped=max(stats.files_skipped, end.files_skipped),
        bytes=max(stats.bytes, end.bytes),
        tail=max(stats.tail, end.tail),
        took_ms=stats.took_ms + end.took_ms,
        missing=stats.missing + max(end.count - came, 0),
    )
