"""Hop-by-hop forwarding and repair of the streams that pass a node.

The node forwards new events, sends heartbeats to a neighbour until it and all nodes beyond it have
acknowledged everything, sends nacks for missing events to its parent (the neighbour towards the
source), and merges acknowledgements on their way there. A node that receives nothing more from its
parent is no longer on the tree and stops its heartbeats. An event still queued for a link is
neither retransmitted nor announced by a heartbeat: it will arrive, and a request for it would only
delay it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.streams.messages import (
    Ack,
    Have,
    Message,
    Nack,
    StreamHeartbeat,
    StreamState,
    encode,
)
from accord.core.channels.streams.source_stream import (
    MAX_NACKED,
    BufferedEvent,
    HeartbeatBackoff,
    SourceStream,
)
from accord.core.channels.streams.stream_sender import ResponseTimes
from accord.core.channels.template import Context
from accord.core.channels.trees.tree import problem_with_tree
from accord.core.channels.trees.tree_cache import KnownTrees
from accord.core.model.units import NEVER_US

QUIET_US: Final = 10_000_000
_ACK_US: Final = 40_000
_MERGE_US: Final = 15_000
_MANY: Final = 64  # events after which an ack is sent at once
_MIN_SYNC_US: Final = 80_000
_MAX_SILENCE_US: Final = 2_000_000  # even to a neighbour whose events all wait for its link


class StreamRelay:
    """Forwards, acknowledges and repairs streams; one per template."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.trees = KnownTrees(context.name)
        self.response_times = ResponseTimes()

    def adopt_tree(
        self, neighbour: str, stream: SourceStream, state: StreamState, now_us: int
    ) -> None:
        """Switch to the tree that the source has chosen last."""
        if state.tree is not None:
            if problem_with_tree(state.tree) or state.tree.digest() != state.digest:
                return
            self.trees.learn(state.tree, state.digest, now_us)
            self.trees.confirm(neighbour, state.digest, now_us)
            self._send(neighbour, stream.channel, Have(state.digest))
        is_known = self.trees.neighbours(state.digest, now_us) is not None
        if not is_known:
            self._send(neighbour, stream.channel, Have(state.digest, is_missing=True))
        is_other = state.tree_epoch > stream.tree_epoch or not stream.parent
        if is_other:
            stream.tree_epoch = state.tree_epoch
            stream.parent = neighbour  # until the tree is known
            stream.digest = state.digest
            stream.heartbeats.clear()
            stream.failed_nacks = 0
            stream.nack_us = min(stream.nack_us, now_us) if stream.is_incomplete() else NEVER_US
        if is_known and state.tree_epoch == stream.tree_epoch:
            stream.parent = self.trees.next_hop(stream.digest, stream.key.source) or neighbour
        if is_other or neighbour == stream.parent:
            stream.received_us = now_us
        if is_known:
            self.start_heartbeats(stream, now_us, is_new_tree=is_other)

    def start_heartbeats(self, stream: SourceStream, now_us: int, *, is_new_tree: bool) -> None:
        """Start heartbeats to neighbours that may lack events, at once if the tree has changed."""
        for each in self.trees.neighbours(stream.digest, now_us) or ():
            is_watched = each == stream.parent or each in stream.heartbeats
            if not is_watched and not self._is_complete(stream, each, stream.last_sent):
                pause_us = self._heartbeat_us(each, now_us)
                stream.heartbeats[each] = HeartbeatBackoff(
                    now_us if is_new_tree else now_us + pause_us, pause_us
                )

    def forward(
        self, stream: SourceStream, number: int, kept: BufferedEvent, origin: str, now_us: int
    ) -> None:
        """Forward an event to all neighbours farther from its source."""
        for each in self.trees.neighbours(stream.digest, now_us) or ():
            if each not in (origin, stream.parent):
                self._send_event(each, stream, number, kept, now_us)

    def on_event(self, stream: SourceStream, now_us: int) -> None:
        """Schedule the acknowledgement of an event that has arrived."""
        stream.unacked += 1
        due_us = now_us if stream.unacked >= _MANY else now_us + _ACK_US
        stream.ack_us = min(stream.ack_us, due_us)
        stream.schedule_nack(now_us)

    def on_heartbeat(
        self, neighbour: str, stream: SourceStream, message: StreamHeartbeat, now_us: int
    ) -> None:
        """Handle a heartbeat; it is acknowledged at once."""
        stream.schedule_nack(now_us)
        stream.ack_us = now_us
        self.response_times.on_report(neighbour, message.response_us, now_us)
        if neighbour == stream.parent:
            stream.echo_us = message.sent_us

    def on_nack(self, neighbour: str, stream: SourceStream, message: Nack, now_us: int) -> None:
        """Retransmit the events that a neighbour lacks."""
        left = MAX_NACKED
        ranges = message.ranges[:MAX_NACKED]
        if any(first < stream.window_base for first, _ in ranges):
            self._announce_base(neighbour, stream, now_us)
        for first, last in ranges:
            begin = max(first, stream.window_base)
            for number in range(begin, min(last + 1, stream.last_sent + 1, begin + left)):
                kept = stream.events.get(number)
                if kept is not None and not self._is_queued(neighbour, stream, number):
                    left -= 1
                    self._send_event(neighbour, stream, number, kept, now_us)

    def on_ack(self, neighbour: str, stream: SourceStream, message: Ack, now_us: int) -> None:
        """Merge an acknowledgement and schedule passing it on."""
        if message.echo_us:
            self.response_times.on_reply(neighbour, message.echo_us, now_us)
        beyond = self.trees.beyond(stream.digest, neighbour)
        has_changed = stream.merge_acks(message.acked_through, beyond)
        if message.window_base > stream.bases.get(neighbour, 0):
            stream.bases[neighbour] = message.window_base
        if self._is_complete(stream, neighbour, stream.last_sent):
            stream.heartbeats.pop(neighbour, None)
        elif has_changed:
            pause_us = self._heartbeat_us(neighbour, now_us)
            stream.heartbeats[neighbour] = HeartbeatBackoff(now_us + pause_us, pause_us)
        if has_changed and stream.parent:
            stream.ack_us = min(stream.ack_us, now_us + _MERGE_US)

    def run_due(self, stream: SourceStream, now_us: int) -> None:
        """Run expired timers of a stream."""
        if stream.nack_us <= now_us:
            self._send_nack(stream, now_us)
        if stream.ack_us <= now_us:
            self._send_ack(stream, now_us)
        if stream.parent and now_us - stream.received_us >= QUIET_US:
            stream.heartbeats.clear()
        for neighbour, pace in list(stream.heartbeats.items()):
            if pace.due_us > now_us:
                continue
            if self._is_complete(stream, neighbour, stream.last_sent):
                del stream.heartbeats[neighbour]
                continue
            pace.back_off(now_us)
            top = self._sent_through(neighbour, stream)
            if now_us - pace.sent_us >= _MAX_SILENCE_US or self._needs_heartbeat(
                stream, neighbour, top
            ):
                pace.sent_us = now_us
                state = self._state_for(neighbour, stream, top, now_us)
                took_us = self.response_times.estimate_us(neighbour, now_us)
                self._send(neighbour, stream.channel, StreamHeartbeat(state, now_us, took_us))

    def _announce_base(self, neighbour: str, stream: SourceStream, now_us: int) -> None:
        """Schedule a heartbeat to a neighbour that requests events below the base."""
        if neighbour in (self.trees.neighbours(stream.digest, now_us) or ()):
            stream.bases.pop(neighbour, None)
            stream.heartbeats[neighbour] = HeartbeatBackoff(
                now_us, self._heartbeat_us(neighbour, now_us)
            )

    def _send_event(
        self, neighbour: str, stream: SourceStream, number: int, kept: BufferedEvent, now_us: int
    ) -> None:
        state = self._state_for(neighbour, stream, stream.last_sent, now_us)
        event = msgspec.structs.replace(
            kept.event,
            number=number,
            deadline_us=0,  # checked on delivery: a stream has no holes
            age_us=kept.event.age_us + now_us - kept.at_us,
            header=encode(msgspec.structs.replace(kept.header, state=state)),
        )
        self.context.forward(neighbour, event)
        pause_us = self._heartbeat_us(neighbour, now_us)
        stream.heartbeats[neighbour] = HeartbeatBackoff(now_us + pause_us, pause_us, sent_us=now_us)

    def _state_for(
        self, neighbour: str, stream: SourceStream, top: int, now_us: int
    ) -> StreamState:
        tree = self.trees.to_attach(neighbour, stream.digest, now_us)
        return StreamState(
            stream.key, stream.window_base, top, stream.tree_epoch, stream.digest, tree
        )

    def _sent_through(self, neighbour: str, stream: SourceStream) -> int:
        """The last event that is no longer queued for the link."""
        number = stream.last_sent
        while number >= stream.window_base and self._is_queued(neighbour, stream, number):
            number -= 1
        return number

    def _needs_heartbeat(self, stream: SourceStream, neighbour: str, top: int) -> bool:
        """Whether the neighbour may lack events up to `top`, those not queued for its link.

        If all events are queued no heartbeat is needed: each event carries the stream's state.
        """
        if top == stream.last_sent:
            return True
        return top >= stream.window_base and not self._is_complete(stream, neighbour, top)

    def _is_queued(self, neighbour: str, stream: SourceStream, number: int) -> bool:
        return self.context.is_queued(neighbour, stream.channel, stream.key.source, number)

    def _is_complete(self, stream: SourceStream, neighbour: str, top: int) -> bool:
        """Whether a neighbour and all nodes beyond it have everything up to `top`."""
        if stream.bases.get(neighbour, 0) < stream.window_base:
            return False
        reports = stream.reports
        return all(
            reports.get(each, -1) >= top for each in self.trees.beyond(stream.digest, neighbour)
        )

    def _send_nack(self, stream: SourceStream, now_us: int) -> None:
        ranges = stream.missing()
        if ranges:
            self._send(stream.parent, stream.channel, Nack(stream.key, ranges))
            pause_us = self.response_times.retransmit_us(stream.parent, now_us)
            stream.back_off_nack(max(3 * self._latency_us(stream.parent), pause_us), now_us)
        else:
            stream.nack_us = NEVER_US

    def _send_ack(self, stream: SourceStream, now_us: int) -> None:
        stream.ack_us = NEVER_US
        stream.unacked = 0
        through = {self.context.name: stream.acked_through}
        for each in self.trees.neighbours(stream.digest, now_us) or ():
            if each != stream.parent:
                for node in self.trees.beyond(stream.digest, each):
                    if node in stream.reports:
                        through[node] = stream.reports[node]
        ack = Ack(stream.key, stream.window_base, through, stream.echo_us)
        stream.echo_us = 0
        self._send(stream.parent, stream.channel, ack)

    def _heartbeat_us(self, neighbour: str, now_us: int) -> int:
        pause_us = 3 * self._latency_us(neighbour) + _ACK_US
        return max(_MIN_SYNC_US, pause_us, self.response_times.retransmit_us(neighbour, now_us))

    def _latency_us(self, neighbour: str) -> int:
        return self.context.map.latency_us(self.context.name, neighbour) or 0

    def _send(self, neighbour: str, channel: str, message: Message) -> None:
        self.context.send_message(neighbour, channel, encode(message))
