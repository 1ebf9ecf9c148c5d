"""Query requests for kept events, by MQTT or HTTP, and their validation."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import EventError, PredicateError
from accord.core.model.times import parse_time
from accord.core.monitoring.ledger import event_number
from accord.core.predicates.predicate import parse, parse_xpath
from accord.core.queries.messages import EventQuery
from accord.core.queries.page_tokens import decode_token
from accord.runtime.pipeline_options import PipelineError

ANY: Final = "#"
MAX_LIMIT: Final = 1 << 40


class QueryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects events by filter, content and time; or one event by its ID."""

    channel: str | None = None
    where: str | None = None
    xpath: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    order: Literal["newest", "oldest"] = "newest"
    event: str | None = None


def read_question(question: QueryRequest, *, now_ms: int) -> EventQuery:
    """Raises PipelineError with the location of the problem if the request is invalid."""
    since_ms = _moment(question.since, "since", now_ms)
    until_ms = _moment(question.until, "until", now_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise wrong("since", "expected a time before `until`")
    if question.limit is not None and not 1 <= question.limit <= MAX_LIMIT:
        raise wrong("limit", f"expected 1 to {MAX_LIMIT}, got {question.limit}")
    return checked(
        EventQuery(
            channel=_channel(question),
            where=question.where or "",
            xpath=question.xpath or "",
            since_ms=since_ms,
            until_ms=until_ms,
            number=_number(question.event),
            is_newest_first=question.order == "newest",
            limit=question.limit,
        )
    )


def read_cursor(text: str) -> tuple[EventQuery, str]:
    """The query of a page's cursor, and its position; raises PipelineError if invalid."""
    try:
        ask, cursor = decode_token(text)
    except ValueError as error:
        raise wrong("cursor", str(error)) from None
    # Foreign input: fields that this node never writes make it invalid.
    is_ours = not ask.from_offset and ask.before_offset is None
    is_bounded = 0 < (ask.limit or 1) <= MAX_LIMIT
    if problem_with_filter(ask.channel) or not (is_ours and is_bounded):
        raise wrong("cursor", "expected the cursor of a page, just as it was given")
    return checked(ask), cursor


def is_about_one(ask: EventQuery) -> bool:
    """Whether the query is for one event ID; rights are checked when its channel is known."""
    return ask.number is not None and ask.channel == ANY


def checked(ask: EventQuery) -> EventQuery:
    """`ask` with its predicate validated; raises PipelineError."""
    if is_about_one(ask) and (ask.where or ask.xpath):
        # Otherwise predicates would reveal the content of events the client may not see.
        raise wrong("channel", "expected a filter of channels, such as uav/#, with a predicate")
    if ask.where and ask.xpath:
        raise wrong("xpath", "expected either where or xpath, got both")
    for place, text, read in (("where", ask.where, parse), ("xpath", ask.xpath, parse_xpath)):
        if text:
            try:
                read(text)
            except PredicateError as error:
                raise wrong(place, error.summary) from None
    return ask


def wrong(place: str, problem: str) -> PipelineError:
    return PipelineError("question", problem, place)


def _channel(question: QueryRequest) -> str:
    if question.channel is None:
        if question.event is None:
            raise wrong("channel", "expected a filter of channels, such as uav/#")
        return ANY
    if problem := problem_with_filter(question.channel):
        raise wrong("channel", problem)
    return question.channel


def _moment(text: str | None, place: str, now_ms: int) -> int | None:
    try:
        return None if text is None else parse_time(text, now_ms=now_ms)
    except ValueError as error:
        raise wrong(place, str(error)) from None


def _number(event: str | None) -> int | None:
    try:
        return None if event is None else event_number(event)
    except EventError as error:
        raise wrong("event", error.problem) from None
