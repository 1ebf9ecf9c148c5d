"""Messages between nodes about the history of persistent channels.

Requests are control unicasts. A page of events is itself an event on the service's channel, so that
history queues behind live events on each link. A parent relays the requests of a secondary node
with its name in `child`, and so return the replies.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.channels import problem_with_filter

SERVICE: Final = "$past"
MAX_ROWS: Final = 1_000  # per page
MAX_BYTES: Final = 1 << 20
MAX_TEXT: Final = 65_536  # of a predicate
MAX_CURSOR: Final = 16_384
MAX_NUMBER: Final = 1 << 62

Stamp = tuple[int, int]  # version of another node's records: incarnation and version


class CutRequest(msgspec.Struct, frozen=True, array_like=True, tag="cut?"):
    """Requests the end of the receiver's journal, and what it knows of the sender."""

    round: int
    child: str = ""


class CutReply(msgspec.Struct, frozen=True, array_like=True, tag="cut"):
    """A position in the journal that is on disk: the boundary between history and later events.

    Events of persistent channels before the cut have numbers up to `number`, later ones larger
    numbers. `heard` is the version of the requester's records known at the cut: if it includes the
    requester's interest, all events after the cut are sent to it as they are published.
    """

    round: int
    incarnation: int
    offset: int
    number: int
    heard: Stamp
    child: str = ""


class HistorySelector(msgspec.Struct, frozen=True, array_like=True):
    """The events that a subscription selects, and from when on."""

    filter: str
    where: str = ""
    xpath: str = ""
    since_ms: int = 0


class PageRequest(msgspec.Struct, frozen=True, array_like=True, tag="page?"):
    """Requests events from offset `start` up to `before`, after those that `cursor` stands for."""

    id: int
    wanted: HistorySelector
    start: int
    before: int
    cursor: str
    rows: int
    bytes: int
    child: str = ""


class PageUnavailable(msgspec.Struct, frozen=True, array_like=True, tag="no page"):
    """The page cannot be read now; the requester retries later."""

    id: int
    problem: str
    child: str = ""


class PageInProgress(msgspec.Struct, frozen=True, array_like=True, tag="working"):
    """The page is being read."""

    id: int
    child: str = ""


class HistoryEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event from a journal; `block` has its properties as they were published.

    An event of a secondary node's client has that node as its `origin`, and its number there.
    """

    number: int
    received_ms: int
    channel: str
    publisher: str
    qos: int
    block: bytes
    payload: bytes
    origin: str = ""
    original: int = 0


class HistoryPage(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """A page of events; the last one has no cursor.

    `missing` records could not be read or sent.
    """

    id: int
    events: tuple[HistoryEvent, ...]
    cursor: str = ""
    missing: int = 0
    child: str = ""


HistoryRequest = CutRequest | PageRequest
HistoryReply = CutReply | PageUnavailable | PageInProgress | HistoryPage
Body = CutRequest | CutReply | PageRequest | PageUnavailable | PageInProgress

encode: Final = msgspec.msgpack.Encoder().encode
bodies: Final[msgspec.msgpack.Decoder[Body]] = msgspec.msgpack.Decoder(Body)
pages: Final[msgspec.msgpack.Decoder[HistoryPage]] = msgspec.msgpack.Decoder(HistoryPage)


def problem_with_question(asked: PageRequest) -> str:
    """Return why the request is invalid; "" if it is valid."""
    wanted = asked.wanted
    if problem := problem_with_filter(wanted.filter):
        return f"filter: {problem}"
    if len(wanted.where) > MAX_TEXT or len(wanted.xpath) > MAX_TEXT:
        return f"predicate: expected at most {MAX_TEXT} characters"
    if not 0 <= asked.start <= asked.before <= MAX_NUMBER:
        return f"offsets: expected a range, got {asked.start} to {asked.before}"
    if not (0 < asked.rows <= MAX_ROWS and 0 < asked.bytes <= MAX_BYTES):
        return f"page: expected 1 to {MAX_ROWS} events and {MAX_BYTES} bytes"
    if len(asked.cursor) > MAX_CURSOR:
        return f"cursor: expected at most {MAX_CURSOR} characters"
    return ""


def is_cut(cut: CutReply) -> bool:
    """Whether the values are in range."""
    return 0 <= cut.offset <= MAX_NUMBER and 0 <= cut.number <= MAX_NUMBER
