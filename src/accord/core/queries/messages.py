"""Messages between a node and its pipeline: queries, pages of events, and page tokens.

Both ends of a socket send frames: four bytes of length, then one of these messages as msgpack. The
pipeline is stateless between pages: a query can be continued with the cursor of the last page, also
later and by another client.

A page token is a query with the cursor of its last page, sufficient to continue, as one text. It
comes from outside and grants no rights: the client that sends it must be allowed to query.

Declared attributes get columns of their own in the archive. Spark ignores the case of names, so a
declared attribute may not have the name of a built-in column, nor differ from another only in case.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec
from msgspec import Struct

MAX_FRAME: Final = 128 << 20
_LENGTH: Final = 4
ExportFormat = Literal["arrow", "csv", "json"]
EngineName = Literal["datafusion", "spark"]
ReadBy = Literal["datafusion", "spark", "tail"]


class FrameError(Exception):
    """The peer sent an invalid frame: one of the two ends is broken."""


class EventQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects kept events by channel filter, content, time and offset.

    Times are those of reception at the node, from `since_ms` up to but excluding `until_ms`;
    offsets are those of the journal, from `from_offset` up to but excluding `before_offset`.

    The pipeline chooses what reads the archive, if no `engine` is given. With `as_of_version` or
    `as_of_ms` it is the archive at that version or time, without what was not archived then.
    """

    channel: str
    without: tuple[str, ...] = ()  # filters of channels to exclude
    where: str = ""
    xpath: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    from_offset: int = 0
    before_offset: int | None = None
    number: int | None = None  # only this event
    is_newest_first: bool = False
    limit: int | None = None
    engine: EngineName | None = None
    as_of_version: int | None = None
    as_of_ms: int | None = None


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
    """The first message: what to process, and how. Directories are absolute paths."""

    node: str
    journal: str
    archive: str
    work: str  # checkpoints, logs, scratch
    spark: str = ""  # a master's address; empty: in the pipeline's own process
    spark_settings: dict[str, str] = {}  # of Spark itself
    interval_ms: int = 500  # between two batches of the archive
    retain_ms: int | None = None
    large_bytes: int = 1 << 20  # payloads of at least this size are stored in separate files
    memory_mb: int = 1024
    timeout_s: float = 60.0  # of a reply
    declared: dict[str, str] = {}  # attributes that are columns: name -> one of TYPES
    journals: dict[str, str] = {}  # of a site: each node's journal, a folder or the node's address

    def journals_by_node(self) -> dict[str, str]:
        """All journals to archive: those of a site, or the node's own."""
        return self.journals or {self.node: self.journal}


class PageQuery(Struct, frozen=True, kw_only=True, tag="query"):
    """Requests a page: at most so many events and about so many bytes (at least one event).

    With a `cursor` it is the page after that one, with the same `ask` as for the first.
    """

    id: int
    ask: EventQuery
    cursor: str = ""
    rows: int = 1_000
    bytes: int = 1 << 20
    within_ms: int = 10_000  # after which the page ends early
    importance: int = 3


class HistogramRequest(Struct, frozen=True, kw_only=True, tag="histogram"):
    """Requests how many events there are over time, in at most `buckets` of the same width.

    The answer comes in parts, the newest time first; each takes about `within_ms`. With a `cursor`
    it is the part after that one, with the same `ask` as for the first.
    """

    id: int
    ask: EventQuery
    until_ms: int
    cursor: str = ""
    buckets: int = 120
    within_ms: int = 1_000
    importance: int = 3


class ExportRequest(Struct, frozen=True, kw_only=True, tag="export"):
    """Requests a part of a file: at most so many events and about so many bytes of them.

    With a `cursor` it is the part after that one, with the same `ask` as for the first, and with
    the `columns` that the first part has chosen: attributes, and one of TYPES for each.
    """

    id: int
    ask: EventQuery
    format: ExportFormat
    cursor: str = ""
    columns: dict[str, str] = {}
    rows: int = 50_000
    bytes: int = 4 << 20
    importance: int = 3


class Cancel(Struct, frozen=True, tag="cancel"):
    """The reply is no longer wanted."""

    id: int


class ReportRequest(Struct, frozen=True, kw_only=True, tag="report"):
    """Delivered quality from `since_ms` up to `until_ms`."""

    id: int
    since_ms: int
    until_ms: int
    channel: str = "#"
    importance: int = 3


class LedgerLookup(Struct, frozen=True, kw_only=True, tag="ledger"):
    """The archived outcomes of event `number`, at most so many."""

    id: int
    number: int
    most: int = 10_000
    importance: int = 3


class NetLookup(Struct, frozen=True, kw_only=True, tag="net"):
    """The records of the network from `since_ms` up to `until_ms`, the oldest `most`."""

    id: int
    since_ms: int
    until_ms: int
    most: int
    importance: int = 3


class WatchedPredicate(Struct, frozen=True, array_like=True):
    """A registered predicate, and the number of clients that registered it."""

    channel: str
    where: str
    xpath: str
    clients: int = 1


class WatchPredicates(Struct, frozen=True, tag="watch"):
    """All registered predicates; the pipeline measures their rates and selectivities."""

    predicates: tuple[WatchedPredicate, ...]


# From the pipeline.


class Page(Struct, frozen=True, kw_only=True, tag="page"):
    """Events in the requested order; without a cursor it is the last page.

    The other fields are the cost of the query: archive files opened, files skipped because of their
    statistics, bytes of the opened files, and records scanned at the end of the journal because
    they were not archived yet. `engine` read the archive, `tail` if there was nothing to read. All
    events up to `reached_ms` have been looked at.
    """

    id: int
    events: tuple[QueryHit, ...]
    cursor: str = ""
    files: int = 0
    files_skipped: int = 0
    bytes: int = 0
    tail: int = 0
    took_ms: int = 0
    reached_ms: int | None = None
    engine: ReadBy = "tail"


class HistogramPart(Struct, frozen=True, kw_only=True, tag="histogram part"):
    """How many events of each bucket this part found; all parts together have all of them.

    Buckets are as wide as `width_ms`, the first begins at `first_ms`. What was received from
    `read_ms` on has been counted now. `files` were opened, `files_known` counted by what the
    archive knows of them. Without a cursor it is the last part.
    """

    id: int
    first_ms: int
    width_ms: int
    counts: tuple[int, ...]
    read_ms: int
    cursor: str = ""
    files: int = 0
    files_known: int = 0
    bytes: int = 0
    tail: int = 0
    took_ms: int = 0


class ExportPart(Struct, frozen=True, kw_only=True, tag="exported"):
    """A part of a file, with this many events: all bodies together are the file.

    Without a cursor it is the last part.
    """

    id: int
    body: bytes
    events: int
    columns: dict[str, str] = {}
    cursor: str = ""


class QueryFailure(Struct, frozen=True, kw_only=True, tag="failed"):
    """The query failed; `place` is the location of the problem in it, if there is one.

    `kind`: the `question` cannot be answered, the pipeline is too `busy`, it took too long
    (`timeout`), or something `failed`.
    """

    id: int
    problem: str
    place: str = ""
    kind: Literal["question", "busy", "timeout", "failed"] = "failed"


class ReportReply(Struct, frozen=True, kw_only=True, tag="report made"):
    """`body` is the report as JSON."""

    id: int
    body: bytes


class LedgerReply(Struct, frozen=True, kw_only=True, tag="ledger found"):
    """`body` is a list of `journal.ledger_records.ArchivedEntry` as msgpack."""

    id: int
    body: bytes


class NetReply(Struct, frozen=True, kw_only=True, tag="net found"):
    """`body` is a list of times in ms with records of `core.overlay.net_recorder`, as msgpack."""

    id: int
    body: bytes


class Health(Struct, frozen=True, kw_only=True, tag="health"):
    """State of the pipeline, sent every second and on every change."""

    state: str = (
        "starting"  # starting, partial (it answers, without Spark), ready, stopping, failed
    )
    problem: str = ""  # the last failure, and the remedy
    spark: str = ""  # where it runs
    spark_version: str = ""
    spark_ui: str = ""  # address of Spark's own page, if it is on
    event_log: str = ""  # folder of Spark's event logs, if they are on
    build: str = ""
    archived_offset: int = 0  # in the journal; everything before is in the archive
    released_offset: int = 0  # a site's node need not keep its journal before this
    lag_ms: int = 0  # age of the oldest record not archived
    lag_records: int = 0
    events: int = 0  # archived since the start
    ledger_rows: int = 0
    rows_per_s: float = 0.0
    files: int = 0
    bytes: int = 0
    compactions: int = 0
    queries: int = 0  # completed since the start
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


Answerable = PageQuery | ReportRequest | HistogramRequest | ExportRequest | LedgerLookup | NetLookup
Answers = Page | ReportReply | HistogramPart | ExportPart | LedgerReply | NetReply
FromNode = StartPipeline | Answerable | Cancel | WatchPredicates
FromPipeline = Answers | QueryFailure | Health | MeasuredValues

_encode: Final = msgspec.msgpack.Encoder().encode
_from_node: Final[msgspec.msgpack.Decoder[FromNode]] = msgspec.msgpack.Decoder(FromNode)
_from_pipeline: Final[msgspec.msgpack.Decoder[FromPipeline]] = msgspec.msgpack.Decoder(FromPipeline)


def encode_frame(message: FromNode | FromPipeline) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def decode_from_node(body: bytes) -> FromNode:
    """Raises FrameError if `body` is not a message."""
    try:
        return _from_node.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None


def decode_from_pipeline(body: bytes) -> FromPipeline:
    """Raises FrameError if `body` is not a message."""
    try:
        return _from_pipeline.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None


class PageFrames:
    """Splits the bytes from a socket into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the bodies of completed frames; FrameError if one is too long."""
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


MAX_TOKEN: Final = 200_000


class PageToken(Struct, frozen=True, array_like=True):
    """A query, the cursor of its last page, and the columns of an exported file."""

    query: EventQuery
    cursor: str
    columns: dict[str, str] = {}


_decoder: Final = msgspec.msgpack.Decoder(PageToken)


def encode_token(query: EventQuery, cursor: str, columns: dict[str, str] | None = None) -> str:
    """Returns "" if there are no more pages."""
    if not cursor:
        return ""
    token = _encode(PageToken(query, cursor, columns or {}))
    return urlsafe_b64encode(token).rstrip(b"=").decode()


def decode_token(text: str) -> PageToken:
    """ValueError if the token is invalid."""
    try:
        if len(text) > MAX_TOKEN:
            raise ValueError
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        return _decoder.decode(data)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise ValueError("expected the cursor of a page, just as it was given") from None


TYPES: Final = ("integer", "float", "string", "boolean", "timestamp")
COLUMNS: Final = frozenset(
    {
        "node",
        "offset",
        "number",
        "channel",
        "publisher",
        "received",
        "qos",
        "key",
        "deadline_ms",
        "content_type",
        "attributes",
        "metadata",
        "paths",
        "payload",
        "payload_bytes",
        "payload_ref",
        "properties",
        "day",
        "group",
    }
)
MAX_DECLARED: Final = 200
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


def problem_with(name: str, type_: object) -> str:
    """The problem with one declaration; "" if there is none."""
    if not _NAME.fullmatch(name):
        return "expected the name of an attribute: up to 100 letters, digits and _"
    if name.lower() in COLUMNS:
        return f"every event has a column {name.lower()!r}, expected another name"
    if type_ not in TYPES:
        choices = ", ".join(f'"{each}"' for each in TYPES)
        return f"expected one of {choices}, got {str(type_)[:60]!r}"
    return ""


def problems_among(declared: Iterable[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    """Declarations that contradict an earlier one, by index, with the problem."""
    known: dict[str, tuple[str, str]] = {}
    for position, (name, type_) in enumerate(declared):
        first, first_type = known.setdefault(name.lower(), (name, type_))
        if first != name:
            yield position, f"expected it to be called {first}, as before: case makes no difference"
        elif first_type != type_:
            yield position, f'expected "{first_type}", as it is declared before, got "{type_}"'
        elif len(known) > MAX_DECLARED:
            yield position, f"expected at most {MAX_DECLARED} declared attributes"
            return
