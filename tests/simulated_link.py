"""A link in virtual time, with a sender that is driven as the server drives its connections.

Segments queue in front of a link of some rate, arrive after a delay, and are acknowledged two at a
time, or one after 40 ms. A lost one holds up acknowledgements until it has been sent again.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from accord.core.scheduling.link_estimator import LinkEstimator

DELAYED_ACK_US: Final = 40_000
AGAIN_US: Final = 200
SEGMENT: Final = 1_448
S: Final = 1_000_000


@dataclass
class SimulatedLink:
    """Carries bytes at `rate_bps(now_us)`; segments and acknowledgements take `delay_us` each."""

    rate_bps: Callable[[int], int]
    delay_us: int = 0
    loss: float = 0.0
    seed: int = 0
    bunch_us: int = 0  # acknowledgements come in bunches, so far apart
    reads: Callable[[int], bool] = lambda _: True
    segment: int = SEGMENT
    now_us: int = 0
    handed: int = 0
    acked: int = 0
    early: int = 0  # acknowledged behind a gap
    busy_us: int = 0
    window: int = 10
    _sent: int = 0
    _received: int = 0
    _unacknowledged: int = 0
    _free_us: int = 0
    _number: int = 0
    _happenings: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _early: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 (to be replayed)

    def hand(self, size: int) -> None:
        self.handed += size
        self._transmit()

    def outstanding(self) -> int:
        return self.handed - self.acked - self.early

    def waiting_us(self) -> int:
        """How long a segment that were sent now would wait for those before it."""
        unsent = self.handed - self._sent
        return max(self._free_us - self.now_us, 0) + unsent * 8 * S // self.rate_bps(self.now_us)

    def run_until(self, until_us: int) -> None:
        while self._happenings and self._happenings[0][0] <= until_us:
            self.now_us, _, happen = heapq.heappop(self._happenings)
            happen()
        self.now_us = until_us

    def _at(self, at_us: int, happen: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._happenings, (at_us, self._number, happen))

    def _transmit(self) -> None:
        """As far as TCP's congestion window allows."""
        while self._sent < self.handed and self._sent - self.acked < self.window * self.segment:
            start = self._sent
            end = min(start + self.segment, self.handed)
            self._sent = end
            self._put_on_link(start, end, self.now_us)

    def _put_on_link(self, start: int, end: int, now_us: int) -> None:
        begins_us = max(now_us, self._free_us)
        takes_us = (end - start) * 8 * S // self.rate_bps(begins_us)
        self._free_us = begins_us + takes_us
        self.busy_us += takes_us
        if self._random.random() < self.loss:
            # Found out about after a round trip or two.
            again_us = self._free_us + 3 * self.delay_us + 20_000
            self._at(again_us, lambda: self._put_on_link(start, end, again_us))
        else:
            self._at(self._free_us + self.delay_us, lambda: self._arrive(start, end))

    def _arrive(self, start: int, end: int) -> None:
        if not self.reads(self.now_us):
            self._at(self.now_us + 50_000, lambda: self._arrive(start, end))
            return
        is_in_order = start <= self._received
        self._early.add((start, end))
        for first, last in sorted(self._early):
            if first > self._received:
                break
            self._received = max(self._received, last)
            self._early.discard((first, last))
        self._unacknowledged += 1
        if self._unacknowledged >= 2 or not is_in_order:
            self._acknowledge()
        else:
            self._at(self.now_us + DELAYED_ACK_US, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            self._unacknowledged = 0
            upto = self._received
            early = sum(end - start for start, end in self._early)
            at_us = self.now_us + self.delay_us
            if self.bunch_us:
                at_us += -at_us % self.bunch_us
            self._at(at_us, lambda: self._acknowledged(upto, early))

    def _acknowledged(self, upto: int, early: int) -> None:
        if upto >= self.acked:
            self.early = early
        if upto > self.acked:
            self.window += max((upto - self.acked) // self.segment, 1)  # slow start, for ever
            self.acked = upto
        self._transmit()


@dataclass
class Figures:
    """What was found during one stretch of time."""

    use: float  # of what the link could carry
    waits_us: list[int]  # of each event, from when it was handed over to when its turn came
    looks: int
    allowance: int
    rate_bps: int


class Sender:
    """Hands events of `size` bytes to a link as the server does, without end or when `wants`."""

    def __init__(
        self,
        carrier: SimulatedLink,
        *,
        size: int = 10_000,
        late_us: int = 500,
        work_us: int = 0,
        wants: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.carrier = carrier
        self.link = LinkEstimator()
        self.link.set_path(carrier.segment, 2 * carrier.delay_us + 200)
        self.size = size
        self.late_us = late_us
        self.work_us = work_us
        self.wants = wants
        self.waits_us: list[int] = []
        self.looks = 0
        self._due_us = 0

    def run(self, duration_us: int) -> Figures:
        """Go on for so long; gives what was found during that time."""
        carrier = self.carrier
        until_us = carrier.now_us + duration_us
        busy_us = carrier.busy_us - max(carrier._free_us - carrier.now_us, 0)
        self.waits_us = []
        self.looks = 0
        while carrier.now_us < until_us:
            if carrier.now_us >= self._due_us:
                self._flush()
            # Timers are a little late; events come every 5 ms where they are not always there.
            next_us = carrier.now_us + 5_000
            if self._due_us > carrier.now_us:
                next_us = self._due_us + self.late_us
            carrier.run_until(min(next_us, until_us))
        busy_us = carrier.busy_us - max(carrier._free_us - carrier.now_us, 0) - busy_us
        return Figures(
            use=busy_us / duration_us,
            waits_us=self.waits_us,
            looks=self.looks,
            allowance=self.link.send_window,
            rate_bps=self.link.rate_bps,
        )

    def _flush(self) -> None:
        link = self.link
        if link.rate_bps:
            link.expire_sample(self.carrier.now_us)
        while True:
            if link.room <= 0:
                if self.carrier.now_us - link.sampled_us < AGAIN_US:
                    link.hold(self.carrier.now_us)
                else:
                    self.looks += 1
                    link.sample(self.carrier.now_us, self.carrier.outstanding())
                if link.room <= 0:
                    self._due_us = self.carrier.now_us + link.wait_us
                    return
            if not self.wants(self.carrier.now_us):
                return
            wanted = link.room
            while wanted > 0 and self.wants(self.carrier.now_us):
                self.waits_us.append(self.carrier.waiting_us())
                self.carrier.hand(self.size)
                link.sent(self.size)
                wanted -= self.size
            self.carrier.run_until(self.carrier.now_us + self.work_us)
