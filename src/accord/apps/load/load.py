"""A load: publishers and subscribers of one process that share a channel.

Without a rate the loop is closed: only a window of events is in flight to the slowest subscriber,
so that the node always has work and its queues stay short. This measures throughput. With a rate
the loop is open: events are sent when due, regardless of earlier ones.
"""

from __future__ import annotations

import secrets
import selectors
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from accord.apps.load.clients import (
    LoadClient,
    LoadError,
    LoadPublisher,
    LoadSubscriber,
    LoadTarget,
    PacketTemplate,
    Samples,
)

WINDOW_BYTES: Final = 1 << 21

_WAIT_S: Final = 0.05
_PROGRESS_NS: Final = 100_000_000
_STALL_NS: Final = 1_000_000_000
_DRAIN_NS: Final = 30_000_000_000

Progress = Callable[[float], None]
E = TypeVar("E", bound=LoadClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadShape:
    """Numbers of publishers and subscribers, and the events."""

    publishers: int = 1
    subscribers: int = 1
    size: int = 100
    qos: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Results over `spent_s`, and the share of a core the tool itself used."""

    published: int
    delivered: int
    lost: int
    refused: int
    spent_s: float
    cpu_share: float
    samples: Samples

    @property
    def published_hz(self) -> float:
        return self.published / self.spent_s

    @property
    def delivered_hz(self) -> float:
        return self.delivered / self.spent_s


class ChannelLoad:
    """All connections; can run repeatedly."""

    def __init__(self, target: LoadTarget, shape: LoadShape) -> None:
        token = secrets.token_hex(4)
        channel = f"bench/{token}"
        self._qos = shape.qos
        self._template = PacketTemplate(channel, shape.size, shape.qos)
        self._window = max(WINDOW_BYTES // self._template.packet_size, 1)
        self._samples: Samples | None = None
        self._stack = ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        try:
            self._subscribers = [
                self._opened(
                    LoadSubscriber(target, f"{token}-sub-{n}", channel, shape.qos, shape.size)
                )
                for n in range(shape.subscribers)
            ]
            self._publishers = deque(
                self._opened(LoadPublisher(target, f"{token}-pub-{n}"))
                for n in range(shape.publishers)
            )
            self._check_size()
        except BaseException:
            self._stack.close()
            raise
        self._missed = [0] * shape.subscribers
        self._active_ns = time.perf_counter_ns()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, seconds: float, rate_hz: float | None, progress: Progress) -> Result:
        """Publish for so long, then wait for what is in flight."""
        samples = Samples()
        for subscriber in self._subscribers:
            subscriber.samples = samples if rate_hz is not None else None
        published, delivered, refused = self._published, self._delivered, self._refused
        cpu_s, start_ns = time.process_time(), time.perf_counter_ns()
        end_ns = start_ns + int(seconds * 1e9)
        self._publish(start_ns, end_ns, rate_hz, progress)
        end_ns = max(end_ns, self._drain())
        published, refused = self._published - published, self._refused - refused
        delivered = self._delivered - delivered
        expected = (published - refused) * len(self._subscribers)
        return Result(
            published=published,
            delivered=delivered,
            lost=max(expected - delivered, 0),
            refused=refused,
            spent_s=(end_ns - start_ns) / 1e9,
            cpu_share=(time.process_time() - cpu_s) * 1e9 / (time.perf_counter_ns() - start_ns),
            samples=samples,
        )

    # ---------------------------------------------------------------------------------- publishing

    def _publish(
        self, start_ns: int, end_ns: int, rate_hz: float | None, progress: Progress
    ) -> None:
        first = self._published
        now_ns = reported_ns = self._active_ns = start_ns
        while now_ns < end_ns:
            if rate_hz is None:
                self._poll(0 if self._fill(self._free) else _WAIT_S)
            else:
                elapsed_s = (now_ns - start_ns) / 1e9
                sent = self._published - first
                self._fill(int(rate_hz * elapsed_s) - sent)
                self._poll(min(max((sent + 1) / rate_hz - elapsed_s, 0), _WAIT_S))
            now_ns = time.perf_counter_ns()
            if now_ns - reported_ns >= _PROGRESS_NS:
                progress(min((now_ns - start_ns) / (end_ns - start_ns), 1.0))
                reported_ns = now_ns

    @property
    def _free(self) -> int:
        """How many more events may be in flight."""
        if not self._subscribers:
            return self._window
        accepted = self._published - self._refused
        if time.perf_counter_ns() - self._active_ns > _STALL_NS:
            # Events not received by now are lost; don't wait for them.
            self._missed = [accepted - each.delivered for each in self._subscribers]
        counts = zip(self._subscribers, self._missed, strict=True)
        return self._window - accepted + min(each.delivered + missed for each, missed in counts)

    def _fill(self, wanted: int) -> int:
        """Publish as many as the publishers accept, round-robin; returns how many."""
        left = wanted
        for _ in range(len(self._publishers)):
            if left <= 0:
                break
            publisher = self._publishers[0]
            self._publishers.rotate(-1)
            room = publisher.room if self._qos else self._template.count
            count = min(left, room, self._template.count)
            if publisher.is_idle and count > 0:
                publisher.publish(self._template, count, time.perf_counter_ns())
                self._push(publisher)
                left -= count
        return wanted - left

    def _drain(self) -> int:
        """Wait for replies and deliveries; returns when the last one arrived."""
        start_ns = self._active_ns = time.perf_counter_ns()
        for publisher in self._publishers:
            publisher.fence()
            self._push(publisher)
        while not self._is_quiet:
            now_ns = time.perf_counter_ns()
            if now_ns - self._active_ns > _STALL_NS or now_ns - start_ns > _DRAIN_NS:
                break
            self._poll(_WAIT_S)
        if self._subscribers:
            return max(each.last_ns for each in self._subscribers)
        return self._active_ns

    @property
    def _is_quiet(self) -> bool:
        accepted = self._published - self._refused
        return (
            all(each.is_fenced and each.is_idle for each in self._publishers)
            and (
                not self._qos
                or all(each.published == each.acknowledged for each in self._publishers)
            )
            and all(
                each.is_idle and each.delivered + missed >= accepted
                for each, missed in zip(self._subscribers, self._missed, strict=True)
            )
        )

    # -------------------------------------------------------------------------------------- sockets

    def _poll(self, wait_s: float) -> None:
        for key, mask in self._selector.select(wait_s):
            end: LoadClient = key.data
            self._active_ns = time.perf_counter_ns()
            if mask & selectors.EVENT_READ:
                end.take(self._active_ns)
            self._push(end)

    def _push(self, end: LoadClient) -> None:
        end.push()
        wanted = (
            selectors.EVENT_READ if end.is_idle else selectors.EVENT_READ | selectors.EVENT_WRITE
        )
        if end.watched != wanted:
            self._selector.modify(end.socket, wanted, end)
            end.watched = wanted

    def _opened(self, end: E) -> E:
        self._stack.callback(end.close)
        end.socket.setblocking(False)
        end.watched = selectors.EVENT_READ
        self._selector.register(end.socket, end.watched, end)
        return end

    def _check_size(self) -> None:
        for publisher in self._publishers:
            limit = publisher.server.maximum_packet_size
            if limit is not None and self._template.packet_size > limit:
                raise LoadError(f"the node takes packets of at most {limit:,} bytes")

    @property
    def _published(self) -> int:
        return sum(each.published for each in self._publishers)

    @property
    def _refused(self) -> int:
        return sum(each.refused for each in self._publishers)

    @property
    def _delivered(self) -> int:
        return sum(each.delivered for each in self._subscribers)
