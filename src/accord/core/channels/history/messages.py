"""History of persistent channels: messages between nodes, the channel option, journal reads.

Requests are control unicasts. A page of events is itself an event on the service's channel, so that
history queues behind live events on each link. A parent relays the requests of a secondary node
with its name in `child`; the replies return the same way.

The channel option `persistent` is `true`, or a span such as `7d`.

Reads of the journal for other nodes are queued for the driver, a few pages at a time. The serving
node keeps no state per requester: each request is self-contained and is retried if its reply is
lost. A fair quota limits the pages that one requester has read at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.model.bounded import FairQuota
from accord.core.model.channels import problem_with_filter
from accord.core.model.units import parse_time
from accord.core.overlay.channel_directory import ChannelDefinition

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


PERSISTENT: Final = "persistent"
_NO: Final = ("", "false")
_ALL: Final = "true"
_LATE_MS: Final = 1 << 50
EXPECTED: Final = "expected true, or how far new subscribers look back, such as 7d or 12h"


def is_persistent(definition: ChannelDefinition | None) -> bool:
    return definition is not None and definition.options.get(PERSISTENT, "") not in _NO


def span_ms(definition: ChannelDefinition) -> int | None:
    """How far back a new subscription's history goes; None if there is no limit."""
    text = definition.options.get(PERSISTENT, "")
    return None if text in (*_NO, _ALL) or problem_with(text) else _read(text)


def problem_with(text: str) -> str:
    """Return why the option is invalid; "" if it is valid."""
    if text in (*_NO, _ALL):
        return ""
    try:
        _read(text)
    except ValueError:
        return f"{EXPECTED}, got {text[:40]!r}"
    return ""


def _read(text: str) -> int:
    if not text[:1].isdigit():
        raise ValueError(EXPECTED)
    return _LATE_MS - parse_time(f"-{text}", now_ms=_LATE_MS)


MAX_READING: Final = 32  # pages at a time; a single requester gets half
BUSY: Final = "busy"


class MakeCut(msgspec.Struct, frozen=True):
    """Make a cut; call `on_cut` when everything before it is on disk."""

    to: str
    round: int
    child: str = ""


class ReadPage(msgspec.Struct, frozen=True):
    """Read a page; call `on_page_read` or `on_page_failed`."""

    to: str
    asked: PageRequest


JournalCommand = MakeCut | ReadPage


class JournalReads:
    """Pending reads; the driver takes and executes `orders`.

    `refused` counts page requests refused for lack of room, `senseless` invalid ones.
    """

    def __init__(self, post: Callable[[str, Body, int], None]) -> None:
        self.orders: list[JournalCommand] = []
        self.refused = 0
        self.senseless = 0
        self._post = post
        self._reading: dict[tuple[str, str, int], str] = {}  # requester
        self._shares = FairQuota(MAX_READING)

    def __len__(self) -> int:
        """Number of pages being read."""
        return len(self._reading)

    def cut_asked(self, origin: str, asked: CutRequest) -> None:
        self.orders.append(MakeCut(origin, asked.round, asked.child))

    def page_asked(self, origin: str, asked: PageRequest, now_us: int) -> None:
        key = (origin, asked.child, asked.id)
        if problem := problem_with_question(asked):
            self.senseless += 1
            self._post(origin, PageUnavailable(asked.id, problem, asked.child), now_us)
        elif key in self._reading:
            self._post(origin, PageInProgress(asked.id, asked.child), now_us)
        elif not self._shares.has_room(who := asked.child or origin):
            self.refused += 1
            self._post(origin, PageUnavailable(asked.id, BUSY, asked.child), now_us)
        else:
            self._reading[key] = who
            self._shares.take(who)
            self.orders.append(ReadPage(origin, asked))

    def done(self, order: ReadPage) -> None:
        """Release the quota of a page that was read or failed."""
        who = self._reading.pop((order.to, order.asked.child, order.asked.id), None)
        if who is not None:
            self._shares.release(who)

    def check_invariants(self) -> None:
        assert len(self._reading) == self._shares.count
        self._shares.check_invariants()
