"""What nodes say to each other about the past of persistent channels.

Questions are letters; a page of events is an event of its own, of the service's channel, so that
history waits behind what is live on each link. What a secondary node asks comes from its parent,
with the `child` that it is for, and so do the answers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.channels import problem_with_filter

SERVICE: Final = "$past"
MAX_ROWS: Final = 1_000  # of a page
MAX_BYTES: Final = 1 << 20
MAX_TEXT: Final = 65_536  # of a predicate
MAX_CURSOR: Final = 16_384
MAX_NUMBER: Final = 1 << 62

Stamp = tuple[int, int]  # how much a node has heard of another: incarnation and version


class CutRequest(msgspec.Struct, frozen=True, array_like=True, tag="cut?"):
    """How far is your journal, and what do you know of me?"""

    round: int
    child: str = ""


class CutReply(msgspec.Struct, frozen=True, array_like=True, tag="cut"):
    """A place in the journal, on disk: between what was kept before and what will be later.

    Events of persistent channels that were kept before have numbers up to `number`, later ones have
    larger ones. `heard` is how much was known then of who asks: if that includes what it needs,
    then all events behind the cut are sent to it as they are published.
    """

    round: int
    incarnation: int
    offset: int
    number: int
    heard: Stamp
    child: str = ""


class HistorySelector(msgspec.Struct, frozen=True, array_like=True):
    """What a subscription selects, and from when on."""

    filter: str
    where: str = ""
    xpath: str = ""
    since_ms: int = 0


class PageRequest(msgspec.Struct, frozen=True, array_like=True, tag="page?"):
    """Events from offset `start` up to `before`, behind those that `cursor` stands for."""

    id: int
    wanted: HistorySelector
    start: int
    before: int
    cursor: str
    rows: int
    bytes: int
    child: str = ""


class PageUnavailable(msgspec.Struct, frozen=True, array_like=True, tag="no page"):
    """Not now: ask again after a while."""

    id: int
    problem: str
    child: str = ""


class PageInProgress(msgspec.Struct, frozen=True, array_like=True, tag="working"):
    """The page is being read."""

    id: int
    child: str = ""


class HistoryEvent(msgspec.Struct, frozen=True, array_like=True):
    """`block` is the event's properties as they were published.

    One of a secondary node's client has that node as its `origin`, and a number there.
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
    """Without a cursor there is no more; `missing` records could not be read, or carried."""

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
    """What can't be answered of it; empty if it can."""
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
    """Whether a node could have said so."""
    return 0 <= cut.offset <= MAX_NUMBER and 0 <= cut.number <= MAX_NUMBER
