"""Sequencer election, and the sequencers that run at this node.

The sequencer of a channel is that of the latest epoch while it is not suspected
(`failure_detector`), otherwise the rendezvous of all reachable nodes. A node that is asked by one
that knows no later epoch takes over. That is safe at any time, because a takeover starts by asking
all other nodes. A node that has just started waits first, to learn of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from accord.core.channels.members import Rendezvous
from accord.core.channels.ordering.failure_detector import FailureDetector
from accord.core.channels.ordering.messages import (
    Body,
    CurrentEpoch,
    Epoch,
    EpochPromise,
    HolderQuery,
    PositionRequest,
    PrepareEpoch,
)
from accord.core.channels.ordering.sequencer import PREPARE_US, Sequencer
from accord.core.channels.ordering.source_queue import SourceQueue
from accord.core.channels.template import Context
from accord.core.model.units import NEVER_US

STARTUP_GRACE_US: Final = 3_000_000

# (to, channel, body, now_us)
SendTo = Callable[[str, str, Body, int], None]


class SequencerManager:
    """Sequencers of one node, for all channels."""

    def __init__(self, context: Context, queues: Mapping[str, SourceQueue], send: SendTo) -> None:
        self.sequencers: dict[str, Sequencer] = {}
        self._preparing: dict[str, bool] = {}  # channels whose sequencer may await promises
        self.detector = FailureDetector(context.name, context.map)
        self.rendezvous = Rendezvous(context.name, context.map)
        self._context = context
        self._queues = queues
        self._send = send
        self._started_us = -1
        self._count = 0  # largest epoch count among dropped sequencers
        self._map_version = -1
        self._nodes: dict[str, bool] = {}  # nodes that were ever reachable

    def sequencer_of(self, channel: str, now_us: int) -> str:
        """The node to send requests to; it is expected to reply."""
        name = self._queues[channel].latest[1]
        if not name or self.detector.is_suspected(name, now_us):
            name = self.rendezvous.of(channel)
        self.detector.expect_reply(name, now_us)
        return name

    def on_position_request(
        self, origin: str, channel: str, message: PositionRequest, now_us: int
    ) -> None:
        sequencer = self._serving(origin, channel, message.latest, now_us)
        if sequencer is not None:
            self._send(origin, channel, sequencer.grant(origin, message, now_us), now_us)
        elif (sequencer := self.sequencers.get(channel)) is not None:
            sequencer.hold_request(origin, message)

    def on_holder_query(self, origin: str, channel: str, message: HolderQuery, now_us: int) -> None:
        sequencer = self._serving(origin, channel, message.latest, now_us)
        if sequencer is not None:
            self._send(origin, channel, sequencer.holders(message), now_us)

    def on_promise(self, origin: str, channel: str, message: EpochPromise, now_us: int) -> None:
        sequencer = self.sequencers.get(channel)
        if sequencer is None:
            return
        for node in message.in_contact:
            if node in sequencer.excluded:
                self.detector.clear_suspicion(node, now_us)
        if sequencer.on_promise(origin, message):
            self._grant_held(channel, sequencer, now_us)
            return
        self._queues[channel].on_epoch(message.latest, now_us)
        if self._has_failed(message.latest, now_us):
            self._start_epoch(channel, sequencer, message.latest, now_us)
        else:
            self.drop(channel)

    def on_message(self, node: str, now_us: int) -> None:
        """Record a message from a node; one no longer suspected rejoins the takeovers."""
        if self.detector.on_message(node, now_us):
            for channel, sequencer in self.sequencers.items():
                sequencer.on_reachable([node])
                self._preparing[channel] = True

    def step_down(self, channel: str, epoch: Epoch) -> None:
        """Drop this node's sequencer if another node starts a later epoch."""
        sequencer = self.sequencers.get(channel)
        if sequencer is not None and sequencer.epoch < epoch:
            self.drop(channel)

    def drop(self, channel: str) -> None:
        """Stop sequencing a channel; a later takeover here uses a later epoch."""
        sequencer = self.sequencers.pop(channel, None)
        if sequencer is not None:
            self._count = max(self._count, sequencer.epoch[0])

    def advance(self, now_us: int) -> None:
        self._is_starting(now_us)
        if self._map_version != self._context.map.version:
            self._map_version = self._context.map.version
            self._add_reachable()
        for channel in list(self._preparing):
            sequencer = self.sequencers.get(channel)
            if sequencer is None or not sequencer.is_preparing:
                del self._preparing[channel]
            elif sequencer.prepared_us + PREPARE_US <= now_us:
                self._send_prepare(channel, sequencer, now_us)

    def next_due_us(self) -> int:
        due_us = NEVER_US
        for channel in self._preparing:
            sequencer = self.sequencers.get(channel)
            if sequencer is not None and sequencer.is_preparing:
                due_us = min(due_us, sequencer.prepared_us + PREPARE_US)
        return due_us

    def expire(self, before_us: int, now_us: int) -> None:
        """Drop sequencers that were not used since `before_us`."""
        for channel, sequencer in list(self.sequencers.items()):
            if sequencer.used_us <= before_us:
                self.drop(channel)
        self.detector.expire(now_us)

    def check_invariants(self) -> None:
        self.detector.check_invariants()
        self.rendezvous.check_invariants()
        for channel, sequencer in self.sequencers.items():
            sequencer.check_invariants()
            assert channel in self._preparing or not sequencer.is_preparing

    def _serving(self, origin: str, channel: str, latest: Epoch, now_us: int) -> Sequencer | None:
        """This node's sequencer if it is ready; otherwise None.

        The requester is informed of a current epoch that it does not know or has to wait for.
        """
        queue = self._queues[channel]
        sequencer = self.sequencers.get(channel)
        is_current = sequencer is not None and sequencer.epoch >= max(queue.latest, latest)
        if not is_current and queue.latest > latest and not self._has_failed(queue.latest, now_us):
            self._send(origin, channel, CurrentEpoch(queue.latest), now_us)
            return None
        if not is_current:
            if self._is_starting(now_us):
                return None
            if latest[1]:
                self.detector.adopt_suspicion(latest[1], now_us)
            sequencer = self._take_over(channel, max(queue.latest, latest), now_us)
        assert sequencer is not None
        sequencer.used_us = now_us
        if sequencer.is_ready:
            return sequencer
        self._send(origin, channel, CurrentEpoch(sequencer.epoch), now_us)
        return None

    def _take_over(self, channel: str, latest: Epoch, now_us: int) -> Sequencer:
        sequencer = self.sequencers.get(channel)
        if sequencer is None:
            sequencer = Sequencer(self._context.name, self._context.incarnation, now_us)
            self.sequencers[channel] = sequencer
        self._start_epoch(channel, sequencer, latest, now_us)
        return sequencer

    def _start_epoch(self, channel: str, sequencer: Sequencer, latest: Epoch, now_us: int) -> None:
        nodes = dict.fromkeys([*self._context.map.nodes(), self._context.name], True)
        sequencer.start_epoch(max(latest, (self._count, "", 0)), list(nodes))
        self._preparing[channel] = True
        self._queues[channel].on_epoch(sequencer.epoch, now_us)
        self._send_prepare(channel, sequencer, now_us)

    def _send_prepare(self, channel: str, sequencer: Sequencer, now_us: int) -> None:
        sequencer.exclude(lambda node: self.detector.is_suspected(node, now_us))
        sequencer.prepared_us = now_us
        collect = PrepareEpoch(sequencer.epoch, sequencer.suspected)
        for node in sequencer.awaited():
            self.detector.expect_reply(node, now_us)
            self._send(node, channel, collect, now_us)
        self._grant_held(channel, sequencer, now_us)

    def _grant_held(self, channel: str, sequencer: Sequencer, now_us: int) -> None:
        """Grant the requests that arrived before the sequencer was ready."""
        for origin, request in sequencer.take_requests():
            self._send(origin, channel, sequencer.grant(origin, request, now_us), now_us)

    def _add_reachable(self) -> None:
        """Add reachable nodes that sequencers here have excluded or never known."""
        nodes = self.rendezvous.nodes()
        others = [each for each in nodes if each not in self._nodes]
        if others:
            known = dict.fromkeys(self._context.map.nodes(), True)
            self._nodes = {each: True for each in (*self._nodes, *others) if each in known}
        for channel, sequencer in self.sequencers.items():
            sequencer.join(others)
            if sequencer.excluded:
                sequencer.on_reachable(nodes)
            self._preparing[channel] = True

    def _has_failed(self, epoch: Epoch, now_us: int) -> bool:
        """Whether the epoch's sequencer is suspected, or was an earlier one of this node."""
        return epoch[1] == self._context.name or self.detector.is_suspected(epoch[1], now_us)

    def _is_starting(self, now_us: int) -> bool:
        if self._started_us < 0:
            self._started_us = now_us
        return now_us - self._started_us < STARTUP_GRACE_US
