"""The report on delivered quality, made by the pipeline and displayed everywhere else.

Shares lie between 0 and 1. Undefined values are null: the latency of a channel from which nothing
arrived, or the in-time share if nothing was to arrive. A list starts with the most interesting and
has at most `TOP` entries; lists that had more are named in `shortened`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

TOP: Final = 50
BUCKETS: Final = 60
SEVERAL: Final = ""  # the channel of figures for several channels together


class DeliveredQuality(Struct, frozen=True, kw_only=True):
    """Outcomes of events: an event counts once for each of its destinations.

    Latency is from reception at the node until the event was handed to the destination's link;
    queueing is the part of it in the outbox. `in_time` is the share that arrived and was not late,
    of all that should have arrived: excluding events that a newer one replaced and those that the
    node refused.
    """

    events: int = 0
    delivered: int = 0
    late: int = 0
    shaped: int = 0
    replaced: int = 0
    expired: int = 0
    shed: int = 0
    refused: int = 0
    bytes: int = 0  # of events that arrived
    rate_hz: float = 0.0  # of events that arrived
    bytes_per_s: float = 0.0
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_p99_ms: float | None = None
    queueing_p50_ms: float | None = None
    queueing_p95_ms: float | None = None
    queueing_p99_ms: float | None = None
    in_time: float | None = None

    @property
    def arrived(self) -> int:
        return self.delivered + self.late + self.shaped

    @property
    def undelivered(self) -> int:
        return self.expired + self.shed + self.refused


class NamedQuality(DeliveredQuality, frozen=True, kw_only=True):
    """Quality of one channel, client or node; runs over several channels are under SEVERAL."""

    name: str


class PairQuality(DeliveredQuality, frozen=True, kw_only=True):
    """Quality of the events of one channel for one client."""

    client: str
    channel: str


class MomentQuality(DeliveredQuality, frozen=True, kw_only=True):
    """Quality of the events completed from `at_ms` on, for the report's `bucket_ms`."""

    at_ms: int


class Loss(Struct, frozen=True, kw_only=True):
    """Events that did not arrive, or not as they should have, for one cause on one channel."""

    outcome: str  # late, shaped, replaced, expired, shed, refused
    cause: str  # in words, without figures of single events; may be empty
    policy: str = ""  # that decided it, if any
    channel: str
    events: int
    clients: int  # number of destinations affected, approximately
    share: float  # of all events lost, late, shaped or replaced
    last_ms: int


class PredicateUse(Struct, frozen=True, kw_only=True):
    """Use of a registered predicate on the kept events of its channels."""

    channel: str  # a filter
    where: str
    xpath: str
    clients: int
    seen: int  # events on its channels
    matched: int
    bytes: int  # of matched events
    selectivity: float | None  # matched / seen
    rate_hz: float  # of matched events
    bytes_per_s: float


class SourceUse(Struct, frozen=True, kw_only=True):
    """Events that one publisher sent to one channel, and how many of them were delivered."""

    publisher: str
    channel: str
    events: int = 0  # kept
    bytes: int = 0
    rate_hz: float = 0.0
    last_ms: int | None = None  # when the last one was received
    delivered: int = 0  # each event once for each destination that got it
    destinations: int = 0  # approximately


class Report(Struct, frozen=True, kw_only=True):
    """Delivered quality from `since_ms` up to but excluding `until_ms`."""

    node: str  # whose pipeline made it
    since_ms: int
    until_ms: int
    channel: str = "#"  # the filter that selected channels
    took_ms: int = 0
    kept: int = 0  # events in the archive that were published in this period
    kept_bytes: int = 0
    totals: DeliveredQuality = DeliveredQuality()
    channels: tuple[NamedQuality, ...] = ()  # most events first
    clients: tuple[NamedQuality, ...] = ()
    nodes: tuple[NamedQuality, ...] = ()
    losses: tuple[Loss, ...] = ()  # most events first
    slow: tuple[PairQuality, ...] = ()  # highest latency_p95_ms first
    predicates: tuple[PredicateUse, ...] = ()  # highest rate first
    predicates_unmeasured: int = 0  # registered, but beyond the limit of one report
    sources: tuple[SourceUse, ...] = ()  # most events first
    bucket_ms: int = 0
    series: tuple[MomentQuality, ...] = ()  # without gaps, oldest first
    shortened: tuple[str, ...] = ()  # names of truncated lists


_encode: Final = msgspec.json.Encoder().encode
_decoder: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def encode_report(report: Report) -> bytes:
    return _encode(report)


def decode_report(body: bytes) -> Report:
    """Raises msgspec.DecodeError if `body` is not a report."""
    return _decoder.decode(body)
