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
MOST_ROWS: Final = 1_000  # of a page
MOST_BYTES: Final = 1 << 20
MAX_TEXT: Final = 65_536  # of a predicate
MAX_CURSOR: Final = 16_384
MAX_NUMBER: Final = 1 << 62

Stamp = tuple[int, int]  # how much a node has heard of another: incarnation and version


class CutAsked(msgspec.Struct, frozen=True, array_like=True, tag="cut?"):
    """How far is your journal, and what do you know of me?"""

    round: int
    child: str = ""


class CutMade(msgspec.Struct, frozen=True, array_like=True, tag="cut"):
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


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """What a subscription selects, and from when on."""

    filter: str
    where: str = ""
    xpath: str = ""
    since_ms: int = 0


class PageAsked(msgspec.Struct, frozen=True, array_like=True, tag="page?"):
    """Events from offset `start` up to `before`, behind those that `cursor` stands for."""

    id: int
    wanted: Wanted
    start: int
    before: int
    cursor: str
    rows: int
    bytes: int
    child: str = ""


class NoPage(msgspec.Struct, frozen=True, array_like=True, tag="no page"):
    """Not now: ask again after a while."""

    id: int
    problem: str
    child: str = ""


class Working(msgspec.Struct, frozen=True, array_like=True, tag="working"):
    """The page is being read."""

    id: int
    child: str = ""


class PastEvent(msgspec.Struct, frozen=True, array_like=True):
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


class Page(msgspec.Struct, frozen=True, array_like=True, tag="page"):
    """Without a cursor there is no more; `missing` records could not be read, or carried."""

    id: int
    events: tuple[PastEvent, ...]
    cursor: str = ""
    missing: int = 0
    child: str = ""


Question = CutAsked | PageAsked
Answer = CutMade | NoPage | Working | Page
Body = CutAsked | CutMade | PageAsked | NoPage | Working

encode: Final = msgspec.msgpack.Encoder().encode
bodies: Final[msgspec.msgpack.Decoder[Body]] = msgspec.msgpack.Decoder(Body)
pages: Final[msgspec.msgpack.Decoder[Page]] = msgspec.msgpack.Decoder(Page)


def problem_with_question(asked: PageAsked) -> str:
    """What can't be answered of it; empty if it can."""
    wanted = asked.wanted
    if problem := problem_with_filter(wanted.filter):
        return f"filter: {problem}"
    if len(wanted.where) > MAX_TEXT or len(wanted.xpath) > MAX_TEXT:
        return f"predicate: expected at most {MAX_TEXT} characters"
    if not 0 <= asked.start <= asked.before <= MAX_NUMBER:
        return f"offsets: expected a range, got {asked.start} to {asked.before}"
    if not (0 < asked.rows <= MOST_ROWS and 0 < asked.bytes <= MOST_BYTES):
        return f"page: expected 1 to {MOST_ROWS} events and {MOST_BYTES} bytes"
    if len(asked.cursor) > MAX_CURSOR:
        return f"cursor: expected at most {MAX_CURSOR} characters"
    return ""


def is_cut(cut: CutMade) -> bool:
    """Whether a node could have said so."""
    return 0 <= cut.offset <= MAX_NUMBER and 0 <= cut.number <= MAX_NUMBER
