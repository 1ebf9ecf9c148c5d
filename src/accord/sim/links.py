"""Simulated links: delay, loss, queueing and connections of one direction, and link models.

Two transports. *Stream* is like TCP: in order, exactly once. A lost message is retransmitted after
about a round trip, then after twice that, and so on; later messages wait for it (head-of-line
blocking). While the link is blocked, messages are held and sent later; the connection breaks when
that lasts too long, when one message is lost too often, or when too much is queued. *Datagram* is
like UDP: messages may be lost, duplicated or reordered.

A link with a rate has a queue. Control messages enter it at once; data is pulled from its machine
only when the queue is empty, a few milliseconds' worth at a time, so that control never waits
behind much data. Congestion control is not modelled: a stream has its rate whatever is lost.

The link models of a topology are a common behaviour, and exceptions per link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Literal
from zlib import crc32

from msgspec import Struct
from msgspec.msgpack import Encoder
from msgspec.structs import replace

from accord.sim.clock import Clock, stream
from accord.sim.delays import Constant, Delay, Lognormal, Normal, Recorded, Uniform
from accord.sim.topology import Span
from accord.sim.trace import SimulationError

STREAM: Final = "stream"
DATAGRAM: Final = "datagram"
PULL_BYTES: Final = 65_536
_PULL_US: Final = 10_000  # how much data may precede a control message
_MIN_PULL_BYTES: Final = 1_500
_RETRY_US: Final = 20_000
_MAX_RETRY_US: Final = 3_200_000
_MAX_DOUBLINGS: Final = 8

_encode: Final = Encoder().encode


# (message, checksum of its contents, bytes): a message in flight.
Frame = tuple[Any, int, int]


# (link, message, its checksum, its bytes)
Arrive = Callable[["Link", Any, int, int], None]


class LinkModel(Struct, frozen=True, kw_only=True):
    """Behaviour of one direction of a link."""

    delay: Delay = Constant(10_000)
    jitter_us: int = 0  # maximum extra delay, uniform
    loss: float = 0.0
    duplication: float = 0.0
    is_reordering: bool = True  # datagrams with different delays overtake each other
    mode: Literal["stream", "datagram"] = STREAM
    rate_bps: int = 0  # 0 for unlimited
    queue_bytes: int = 16_777_216
    tries: int = 10  # attempts of a stream per message, before its connection breaks
    dead_us: int = 10_000_000  # how long a stream survives a blocked link
    connect_us: int = 50_000  # until a stream reconnects

    def __post_init__(self) -> None:
        for name in ("loss", "duplication"):
            share = getattr(self, name)
            if not 0.0 <= share < 1.0:
                raise SimulationError(f"{name}: expected at least 0 and less than 1, got {share}")
        for name in ("jitter_us", "rate_bps", "queue_bytes", "tries", "dead_us", "connect_us"):
            if getattr(self, name) < 0:
                raise SimulationError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        if self.delay.typical_us < 0:
            raise SimulationError(f"delay: expected 0 or more, got {self.delay.typical_us}")


class LinkCounts(Struct):
    """What one direction has delivered and dropped, by cause."""

    messages: int = 0
    bytes: int = 0
    data_bytes: int = 0
    arrived: int = 0
    lost: int = 0  # at random
    blocked: int = 0  # while the link or the other node was down
    overflowed: int = 0  # queue full
    unconnected: int = 0  # sent without a connection, or cut off by its end
    duplicated: int = 0
    retried: int = 0
    most_queued_bytes: int = 0


class Link:
    """From `source` to `target`. `is_up` is the state reported to the source's machine."""

    def __init__(  # noqa: PLR0913
        self,
        source: str,
        target: str,
        model: LinkModel,
        *,
        clock: Clock,
        seed: int,
        arrive: Arrive,
        break_: Callable[[Link], None],
    ) -> None:
        self.source = source
        self.target = target
        self.name = f"{source}>{target}"
        self.counts = LinkCounts()
        self.is_up = False
        self.epoch = 0
        self.blocks: dict[str, int] = {}  # causes of blocking, with their counts
        self.blocked_since = 0
        self.slowdown = 1.0
        self.is_pulling = False  # a pull is due when the queue is empty
        self._in_flight: deque[Frame] = deque()  # of a stream, in order of arrival
        self._flight = 0  # incremented when a flight is interrupted
        self._held: deque[Frame] = deque()
        self._held_bytes = 0
        self._clock = clock
        self._seed = seed
        self._random: Random | None = None
        self._arrive = arrive
        self._break = break_
        self._on_stream = self._stream_arrived
        self._on_datagram = self._datagram_arrived
        self._free_us = 0  # when the queue will be empty
        self._last_us = 0  # when the last one arrives
        self.model = model

    @property
    def model(self) -> LinkModel:
        return self._model

    @model.setter
    def model(self, model: LinkModel) -> None:
        self._model = model
        self._is_stream = model.mode == STREAM
        self._delay_us = model.delay.typical_us
        # Fast path: most messages of a large simulation are small, on links without randomness.
        is_varied = model.jitter_us or model.loss or model.duplication or model.rate_bps
        self._is_simple = isinstance(model.delay, Constant) and not is_varied

    @property
    def typical_us(self) -> int:
        return int((self._model.delay.typical_us + self._model.jitter_us // 2) * self.slowdown)

    def queued_bytes(self, now_us: int) -> int:
        """Bytes queued in front of the link, and held while it is blocked."""
        waiting_us = max(self._free_us - now_us, 0)
        return self._held_bytes + waiting_us * self._model.rate_bps // 8_000_000

    def wanted_bytes(self, now_us: int) -> int:
        """How much data it accepts now."""
        if not self.is_up or self._free_us > now_us or (self.blocks and self._is_stream):
            return 0
        rate = self._model.rate_bps
        if not rate:
            return PULL_BYTES
        return min(max(rate * _PULL_US // 8_000_000, _MIN_PULL_BYTES), PULL_BYTES)

    @property
    def free_us(self) -> int:
        """When the queue will be empty."""
        return self._free_us

    def send(self, message: Any, now_us: int) -> None:
        data = message if type(message) is bytes else _encode(message)
        size = len(data)
        counts = self.counts
        counts.messages += 1
        counts.bytes += size
        if data is message:
            counts.data_bytes += size
        if not self.is_up:
            counts.unconnected += 1
            return
        frame = (message, crc32(data), size)
        if not self._is_simple or self.blocks or self.slowdown != 1.0:
            self._queue(frame, now_us)
        elif self._is_stream:
            self._schedule_arrival(frame, now_us + self._delay_us)
        else:
            self._clock.at(now_us + self._delay_us, self._on_datagram, frame)

    def _queue(self, frame: Frame, now_us: int) -> None:
        model = self._model
        if model.rate_bps or self.blocks:
            queued = self.queued_bytes(now_us) + frame[2]
            if queued > model.queue_bytes:
                self.counts.overflowed += 1
                if self._is_stream:
                    self._break(self)
                return
            self.counts.most_queued_bytes = max(self.counts.most_queued_bytes, queued)
        if not self.blocks:
            self._transmit(frame, now_us)
        elif self._is_stream:
            self._held.append(frame)
            self._held_bytes += frame[2]
        else:
            self.counts.blocked += 1

    def _transmit(self, frame: Frame, now_us: int) -> None:
        rate = self._model.rate_bps
        if rate:
            begins_us = max(now_us, self._free_us)
            now_us = self._free_us = begins_us + frame[2] * 8_000_000 // rate
        if self._is_stream:
            self._send_stream(frame, now_us)
        else:
            self._send_datagram(frame, now_us)

    def _send_stream(self, frame: Frame, now_us: int) -> None:
        model = self._model
        random = self._random or self._make_random()
        takes_us = self._draw(random, now_us)
        if model.loss:
            retry_us = 2 * self.typical_us + _RETRY_US
            tries = 1
            while random.random() < model.loss:
                if tries >= model.tries:
                    self.counts.lost += 1
                    self._break(self)
                    return
                takes_us += min(retry_us << min(tries - 1, _MAX_DOUBLINGS), _MAX_RETRY_US)
                tries += 1
            self.counts.retried += tries - 1
        self._schedule_arrival(frame, now_us + takes_us)

    def _schedule_arrival(self, frame: Frame, at_us: int) -> None:
        # Messages after a retransmitted one wait for it.
        if at_us < self._last_us:
            at_us = self._last_us
        else:
            self._last_us = at_us
        self._in_flight.append(frame)
        self._clock.at(at_us, self._on_stream, self._flight)

    def _send_datagram(self, frame: Frame, now_us: int) -> None:
        model = self._model
        random = self._random or self._make_random()
        if model.loss and random.random() < model.loss:
            self.counts.lost += 1
            return
        copies = 1
        if model.duplication and random.random() < model.duplication:
            self.counts.duplicated += 1
            copies = 2
        for _ in range(copies):
            at_us = now_us + self._draw(random, now_us)
            if not model.is_reordering:
                at_us = self._last_us = max(at_us, self._last_us)
            self._clock.at(at_us, self._on_datagram, frame)

    def _draw(self, random: Random, now_us: int) -> int:
        model = self._model
        takes_us = model.delay.draw(random, now_us)
        if model.jitter_us:
            takes_us += int(random.random() * (model.jitter_us + 1))
        return takes_us if self.slowdown == 1.0 else int(takes_us * self.slowdown)

    def _make_random(self) -> Random:
        # Created on demand: it is large, and most links of a large network never need it.
        self._random = stream(self._seed, "link", self.name)
        return self._random

    def _stream_arrived(self, _: int, flight: int) -> None:
        if flight == self._flight:
            message, checksum, size = self._in_flight.popleft()
            self.counts.arrived += 1
            self._arrive(self, message, checksum, size)

    def _datagram_arrived(self, _: int, frame: Frame) -> None:
        if self.blocks:
            self.counts.blocked += 1
        else:
            self.counts.arrived += 1
            self._arrive(self, *frame)

    def interrupt(self) -> None:
        """The link is blocked from now on: a stream has to retransmit what is in flight."""
        self._flight += 1
        self._held_bytes += sum(size for _, _, size in self._in_flight)
        self._held.extend(self._in_flight)
        self._in_flight.clear()

    def release(self, now_us: int) -> None:
        """Retransmit held messages, some time after the link is free again."""
        held, self._held, self._held_bytes = self._held, deque(), 0
        at_us = now_us + min(2 * self.typical_us + _RETRY_US, _MAX_RETRY_US)
        for frame in held:
            self._transmit(frame, at_us)

    def cut(self) -> None:
        """The connection has ended; everything in flight is dropped."""
        self.epoch += 1
        self.is_up = False
        self.counts.unconnected += len(self._held) + len(self._in_flight)
        self._flight += 1
        self._in_flight.clear()
        self._held.clear()
        self._held_bytes = self._free_us = self._last_us = 0


Shape = Literal["constant", "uniform", "normal", "lognormal", "recorded"]


def with_delays(
    model: LinkModel, shape: Shape = "recorded", spread: float = 0.0, step_us: int = 0
) -> Callable[[Span], LinkModel]:
    """Like `model`, but with the topology's delay, if known."""

    def choose(span: Span) -> LinkModel:
        if span.delay_us is None:
            return model
        if shape == "recorded" and span.series:
            return replace(model, delay=Recorded(span.series, step_us))
        return replace(model, delay=spread_around(span.delay_us, shape, spread))

    return choose


def spread_around(delay_us: int, shape: Shape, spread: float) -> Delay:
    """Delays around `delay_us`; `spread` is the relative deviation of most."""
    if spread and shape == "uniform":
        wide_us = min(round(delay_us * spread), delay_us)
        return Uniform(delay_us - wide_us, delay_us + wide_us)
    if spread and shape == "normal":
        return Normal(delay_us, round(delay_us * spread))
    if spread and shape == "lognormal":
        return Lognormal(delay_us, spread)
    return Constant(delay_us)


def except_for(
    choose: Callable[[Span], LinkModel], changes: Mapping[tuple[str, str], dict[str, object]]
) -> Callable[[Span], LinkModel]:
    """As `choose`, but with other values for some links, whose ends may be in either order."""

    def chosen(span: Span) -> LinkModel:
        changed = changes.get((span.one, span.other)) or changes.get((span.other, span.one))
        model = choose(span)
        return replace(model, **changed) if changed else model

    return chosen
