"""The report on delivered quality, as the pipeline makes it and everybody else shows it.

Shares lie between 0 and 1. What there is nothing to say about is null: the latency of a channel
from which nothing arrived, or the in-time share where nothing was to arrive. A list names the most
interesting first, and at most `TOP` of them; lists that had more are named in `shortened`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

TOP: Final = 50
BUCKETS: Final = 60
SEVERAL: Final = ""  # the channel of what is known of several channels together


class DeliveredQuality(Struct, frozen=True, kw_only=True):
    """What became of events on their way: an event counts once for each of its destinations.

    Latency is from when the node received an event until it was handed to the destination's link;
    queueing is the part of it in the outbox. `in_time` is the share that arrived and was not late,
    of all that should have arrived: not of what a newer event replaced, nor of what the node
    refused to take.
    """

    events: int = 0
    delivered: int = 0
    late: int = 0
    shaped: int = 0
    replaced: int = 0
    expired: int = 0
    shed: int = 0
    refused: int = 0
    bytes: int = 0  # of what arrived
    rate_hz: float = 0.0  # of what arrived
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
    def lost(self) -> int:
        return self.expired + self.shed + self.refused


class NamedQuality(DeliveredQuality, frozen=True, kw_only=True):
    """Of one channel, client or node; runs over several channels stand under SEVERAL."""

    name: str


class PairQuality(DeliveredQuality, frozen=True, kw_only=True):
    """Of the events of one channel for one client."""

    client: str
    channel: str


class MomentQuality(DeliveredQuality, frozen=True, kw_only=True):
    """Of the events done with from `at_ms` on, for as long as the report's `bucket_ms`."""

    at_ms: int


class Loss(Struct, frozen=True, kw_only=True):
    """Events that did not arrive, or not as they should have, for one cause on one channel."""

    outcome: str  # late, shaped, replaced, expired, shed, refused
    cause: str  # in words, without the figures of single events; may be empty
    policy: str = ""  # that decided it, where one did
    channel: str
    events: int
    clients: int  # how many destinations it happened to, about
    share: float  # of all that was lost, late, shaped or replaced
    last_ms: int


class PredicateUse(Struct, frozen=True, kw_only=True):
    """A registered predicate over the kept events of the channels it asks for."""

    channel: str  # a filter
    where: str
    xpath: str
    clients: int
    seen: int  # events on its channels
    matched: int
    bytes: int  # of those matched
    selectivity: float | None  # matched of seen
    rate_hz: float  # of those matched
    bytes_per_s: float


class SourceUse(Struct, frozen=True, kw_only=True):
    """What one publisher gave to one channel, and how much of it anybody got."""

    publisher: str
    channel: str
    events: int = 0  # kept
    bytes: int = 0
    rate_hz: float = 0.0
    last_ms: int | None = None  # when the last one was received
    delivered: int = 0  # each event once for each destination that got it
    destinations: int = 0  # about


class Report(Struct, frozen=True, kw_only=True):
    """Delivered quality from `since_ms` up to but without `until_ms`."""

    node: str  # whose pipeline made it
    since_ms: int
    until_ms: int
    channel: str = "#"  # the filter that selected channels
    took_ms: int = 0
    kept: int = 0  # events in the archive, published in this time
    kept_bytes: int = 0
    totals: DeliveredQuality = DeliveredQuality()
    channels: tuple[NamedQuality, ...] = ()  # the most events first
    clients: tuple[NamedQuality, ...] = ()
    nodes: tuple[NamedQuality, ...] = ()
    losses: tuple[Loss, ...] = ()  # the most events first
    slow: tuple[PairQuality, ...] = ()  # the highest latency_p95_ms first
    predicates: tuple[PredicateUse, ...] = ()  # the highest rate first
    predicates_unmeasured: int = 0  # registered, but beyond what one report looks at
    sources: tuple[SourceUse, ...] = ()  # the most events first
    bucket_ms: int = 0
    series: tuple[MomentQuality, ...] = ()  # without gaps, the oldest first
    shortened: tuple[str, ...] = ()  # the names of lists that had more


_encode: Final = msgspec.json.Encoder().encode
_decoder: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def encode_report(report: Report) -> bytes:
    return _encode(report)


def decode_report(body: bytes) -> Report:
    """Raises msgspec.DecodeError for what is no report."""
    return _decoder.decode(body)
