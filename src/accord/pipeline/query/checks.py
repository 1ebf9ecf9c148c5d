"""A validated query, with its predicate parsed once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from accord.core.model.channels import RESPONSES, filter_shows, problem_with_filter, selects_any
from accord.core.model.document import Document
from accord.core.model.errors import AccordError, EventError, PredicateError
from accord.core.model.values import INTEGER_MAX, Value
from accord.core.mqtt.codes import ProtocolError
from accord.core.predicates.predicate import EVERYTHING, Predicate, parse, parse_xpath
from accord.core.predicates.tree import And
from accord.core.queries.messages import EventQuery, PageQuery
from accord.journal.events import KeptEvent

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 32 << 20
MAX_PREDICATE: Final = 100_000  # characters
_MAX_CHANNELS: Final = 10_000
_DIGEST: Final = 8


class InvalidQueryError(AccordError):
    """An invalid query: `place` is the part that is wrong, if there is one."""

    def __init__(self, problem: str, *, place: str = "") -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"{place}: {problem}" if place else problem)


class CheckedQuery:
    """A validated query; `digest` identifies it in every process."""

    def __init__(self, ask: EventQuery, predicate: Predicate) -> None:
        self.query = ask
        self.predicate = predicate
        self.digest = hashlib.blake2b(_encode(ask), digest_size=_DIGEST).digest()
        self.is_newest_first = ask.is_newest_first
        self._selected: dict[str, bool] = {}

    @property
    def has_predicate(self) -> bool:
        return self.predicate != EVERYTHING

    @property
    def is_exact(self) -> bool:
        """Whether it selects a single channel."""
        return not set(self.query.channel.split("/")) & {"+", "#"}

    def selects(self, channel: str) -> bool:
        found = self._selected.get(channel)
        if found is None:
            if len(self._selected) >= _MAX_CHANNELS:
                self._selected.clear()
            found = filter_shows(self.query.channel, channel)
            found = found and not selects_any(self.query.without, channel)
            self._selected[channel] = found
        return found

    def selects_between(self, first: str, last: str) -> bool:
        """Whether it certainly selects all channels from `first` to `last` by name."""
        if first == last:
            return self.selects(first)
        fixed, _, wildcard = self.query.channel.rpartition("/")
        if self.query.without or wildcard != "#" or "+" in fixed.split("/"):
            return False
        if fixed:
            return first.startswith(fixed + "/") and last.startswith(fixed + "/")
        return not any(
            first.startswith(internal) or first < internal <= last for internal in ("$", RESPONSES)
        )

    def may_include(self, received_ms: int, offset: int, number: int) -> bool:
        """Check everything except channel and content."""
        ask = self.query
        return (
            (ask.since_ms is None or received_ms >= ask.since_ms)
            and (ask.until_ms is None or received_ms < ask.until_ms)
            and offset >= ask.from_offset
            and (ask.before_offset is None or offset < ask.before_offset)
            and (ask.number is None or number == ask.number)
        )


_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def seen(event: KeptEvent) -> tuple[Mapping[str, Value], Document | None]:
    """What predicates see of an event, in the journal and in the archive.

    An event that can't be decoded is kept as received, but has no values.
    """
    try:
        read = event.event()
        return read.values, read.metadata
    except (EventError, ProtocolError, ValueError, OverflowError):
        return {}, None


def check(query: PageQuery, most_rows: int = MAX_ROWS) -> CheckedQuery:
    """Validate a query; InvalidQueryError gives the problem."""
    ask = query.ask
    if problem := problem_with_filter(ask.channel):
        raise InvalidQueryError(problem, place="channel")
    _check_range("rows", query.rows, 1, most_rows)
    _check_range("bytes", query.bytes, 1, MAX_BYTES)
    _check_range("limit", ask.limit, 1)
    _check_range("from_offset", ask.from_offset, 0)
    for name in ("since_ms", "until_ms", "before_offset", "number", "as_of_ms", "as_of_version"):
        _check_range(name.removesuffix("_ms").removesuffix("_version"), getattr(ask, name), 0)
    if ask.as_of_ms is not None and ask.as_of_version is not None:
        raise InvalidQueryError("expected a version or a time, got both", place="as_of")
    if ask.since_ms is not None and ask.until_ms is not None and ask.since_ms > ask.until_ms:
        problem = f"expected it before until, got {ask.since_ms} and {ask.until_ms}"
        raise InvalidQueryError(problem, place="since")
    where, xpath = _parse(ask, "where"), _parse(ask, "xpath")
    if where is EVERYTHING or xpath is EVERYTHING:
        return CheckedQuery(ask, xpath if where is EVERYTHING else where)
    return CheckedQuery(ask, Predicate(And((where.tree, xpath.tree))))


def _check_range(place: str, number: int | None, least: int, most: int = INTEGER_MAX) -> None:
    if number is not None and not least <= number <= most:
        raise InvalidQueryError(f"expected {least:,} to {most:,}, got {number:,}", place=place)


def _parse(ask: EventQuery, place: str) -> Predicate:
    text: str = getattr(ask, place)
    if not text:
        return EVERYTHING
    if len(text) > MAX_PREDICATE:
        problem = f"{len(text):,} characters, at most {MAX_PREDICATE:,} accepted"
        raise InvalidQueryError(problem, place=place)
    try:
        return parse(text) if place == "where" else parse_xpath(text)
    except PredicateError as error:
        raise InvalidQueryError(error.summary, place=place) from None
