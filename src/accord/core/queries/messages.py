"""What a node and its pipeline say to each other: questions one way, pages of events the other.

Both ends of a socket speak frames: four bytes of length, then one of these messages as msgpack. A
question can be asked again with the cursor of the last page, also later and by somebody else:
nothing is remembered between pages that is not in the cursor.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

MAX_FRAME: Final = 128 << 20
_LENGTH: Final = 4


class FrameError(Exception):
    """What came from the other side is no frame: one of the two is broken."""


class EventQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which kept events: those of the channels that a filter selects, by content, time and place.

    Times are when the node received an event, from `since_ms` up to but without `until_ms`;
    offsets are those of the journal, from `from_offset` up to but without `before_offset`.
    """

    channel: str
    without: tuple[str, ...] = ()  # filters of channels to leave out
    where: str = ""
    xpath: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    from_offset: int = 0
    before_offset: int | None = None
    number: int | None = None  # just this event
    is_newest_first: bool = False
    limit: int | None = None


class QueryHit(Struct, frozen=True, array_like=True):
    """A kept event; `properties` is its block of MQTT 5 properties as it was published."""

    offset: int
    number: int
    received_ms: int
    channel: str
    publisher: str
    qos: int
    properties: bytes
    payload: bytes


# From the node.


class StartPipeline(Struct, frozen=True, kw_only=True, tag="start"):
    """The first message: what to work on, and with what. Folders are absolute paths."""

    node: str
    journal: str
    archive: str
    work: str  # checkpoints, logs, scratch
    spark: str = ""  # a master's address, or nothing for one in the pipeline's own process
    interval_ms: int = 500  # between two batches of the archive
    retain_ms: int | None = None
    large_bytes: int = 1 << 20  # payloads from this size on are kept in files of their own
    memory_mb: int = 1024
    timeout_s: float = 60.0  # for an answer
    declared: dict[str, str] = {}  # attributes that are columns: name -> name in attributes.TYPES


class PageQuery(Struct, frozen=True, kw_only=True, tag="query"):
    """A page of events: at most so many, and about so many bytes of them (at least one event).

    With a `cursor` it is the page behind that one, and `ask` is what it was for the first.
    """

    id: int
    ask: EventQuery
    cursor: str = ""
    rows: int = 1_000
    bytes: int = 1 << 20
    importance: int = 3


class Cancel(Struct, frozen=True, tag="cancel"):
    """Nobody waits for this answer any more."""

    id: int


class ReportRequest(Struct, frozen=True, kw_only=True, tag="report"):
    """Delivered quality from `since_ms` up to `until_ms`."""

    id: int
    since_ms: int
    until_ms: int
    channel: str = "#"
    importance: int = 3


class WatchedPredicate(Struct, frozen=True, array_like=True):
    """A predicate that somebody has registered; `clients` is how many have."""

    channel: str
    where: str
    xpath: str
    clients: int = 1


class WatchPredicates(Struct, frozen=True, tag="watch"):
    """The registered predicates, all of them: their rates and selectivities are wanted."""

    predicates: tuple[WatchedPredicate, ...]


# From the pipeline.


class Page(Struct, frozen=True, kw_only=True, tag="page"):
    """Events in the order asked for; without a cursor there are no more.

    The rest says what finding them took: files of the archive opened, files passed over because
    what the archive notes of them rules them out, bytes of those opened, records of the journal's
    end looked through because they were not archived yet.
    """

    id: int
    events: tuple[QueryHit, ...]
    cursor: str = ""
    files: int = 0
    files_skipped: int = 0
    bytes: int = 0
    tail: int = 0
    took_ms: int = 0


class QueryFailure(Struct, frozen=True, kw_only=True, tag="failed"):
    """No answer; `place` is what in the question was wrong, where something was.

    `kind`: the `question` can't be answered, it was too `busy` or took too long (`timeout`), or
    something `failed`.
    """

    id: int
    problem: str
    place: str = ""
    kind: Literal["question", "busy", "timeout", "failed"] = "failed"


class ReportReply(Struct, frozen=True, kw_only=True, tag="report made"):
    """`body` is the report as JSON."""

    id: int
    body: bytes


class Health(Struct, frozen=True, kw_only=True, tag="health"):
    """How the pipeline is, told every second and when that changes."""

    state: str = "starting"  # starting, ready, stopping, failed
    problem: str = ""  # what failed last, and the remedy
    spark: str = ""  # where it runs
    spark_version: str = ""
    build: str = ""
    archived_offset: int = 0  # of the journal; everything before is in the archive
    lag_ms: int = 0  # age of the oldest record that is not
    lag_records: int = 0
    events: int = 0  # archived since the start
    ledger_rows: int = 0
    rows_per_s: float = 0.0
    files: int = 0
    bytes: int = 0
    compactions: int = 0
    queries: int = 0  # answered since the start
    queries_running: int = 0
    queries_waiting: int = 0
    restarts: int = 0


class Measure(Struct, frozen=True, array_like=True):
    """A measured value for the registry, such as `rate_hz` of `channel` `uav/imagery`."""

    kind: str  # channel, predicate, publisher, node, link
    subject: str
    name: str  # rate_hz, bytes_per_s, selectivity, availability, …
    value: float
    at_ms: int


class MeasuredValues(Struct, frozen=True, tag="measured"):
    values: tuple[Measure, ...]


FromNode = StartPipeline | PageQuery | Cancel | ReportRequest | WatchPredicates
FromPipeline = Page | QueryFailure | ReportReply | Health | MeasuredValues

_encode: Final = msgspec.msgpack.Encoder().encode
_from_node: Final[msgspec.msgpack.Decoder[FromNode]] = msgspec.msgpack.Decoder(FromNode)
_from_pipeline: Final[msgspec.msgpack.Decoder[FromPipeline]] = msgspec.msgpack.Decoder(FromPipeline)


def encode_frame(message: FromNode | FromPipeline) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def decode_from_node(body: bytes) -> FromNode:
    """FrameError for what is none."""
    try:
        return _from_node.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None


def decode_from_pipeline(body: bytes) -> FromPipeline:
    """FrameError for what is none."""
    try:
        return _from_pipeline.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None


class PageFrames:
    """Bytes as they come from a socket, frame by frame."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies of the frames that are whole now; FrameError for one that is too long."""
        self._data += data
        bodies: list[bytes] = []
        at = 0
        while len(self._data) >= at + _LENGTH:
            size = int.from_bytes(self._data[at : at + _LENGTH], "big")
            if size > MAX_FRAME:
                raise FrameError(f"a frame of {size} bytes, at most {MAX_FRAME} accepted")
            if len(self._data) < at + _LENGTH + size:
                break
            bodies.append(bytes(self._data[at + _LENGTH : at + _LENGTH + size]))
            at += _LENGTH + size
        del self._data[:at]
        return bodies
