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
    MAX_ASKED,
    BufferedEvent,
    HeartbeatBackoff,
    SourceStream,
)
from accord.core.channels.streams.stream_sender import ResponseTimes
from accord.core.channels.template import Context
from accord.core.channels.trees.known_trees import KnownTrees
from accord.core.channels.trees.tree import problem_with_tree
from accord.core.model.units import NEVER_US

QUIET_US: Final = 10_000_000
_ACK_US: Final = 40_000
_MERGE_US: Final = 15_000
_MANY: Final = 64  # events after which an ack is sent at once
_MIN_SYNC_US: Final = 80_000
_REMIND_US: Final = 2_000_000  # even to a neighbour whose events all wait for its link


class StreamRelay:
    """Forwards, acknowledges and repairs streams; one per template."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.trees = KnownTrees(context.name)
        self.answering = ResponseTimes()

    def follow(self, neighbour: str, stream: SourceStream, state: StreamState, now_us: int) -> None:
        """Switch to the tree that the source has chosen last."""
        if state.tree is not None:
            if problem_with_tree(state.tree) or state.tree.digest() != state.digest:
                return
            self.trees.learn(state.tree, state.digest, now_us)
            self.trees.confirm(neighbour, state.digest, now_us)
            self._say(neighbour, stream.channel, Have(state.digest))
        is_known = self.trees.next_to(state.digest, now_us) is not None
        if not is_known:
            self._say(neighbour, stream.channel, Have(state.digest, is_missing=True))
        is_other = state.turn > stream.turn or not stream.parent
        if is_other:
            stream.turn = state.turn
            stream.parent = neighbour  # until the tree is known
            stream.digest = state.digest
            stream.paces.clear()
            stream.in_vain = 0
            stream.nack_us = min(stream.nack_us, now_us) if stream.lacks() else NEVER_US
        if is_known and state.turn == stream.turn:
            stream.parent = self.trees.towards(stream.digest, stream.key.source) or neighbour
        if is_other or neighbour == stream.parent:
            stream.heard_us = now_us
        if is_known:
            self.watch_over(stream, now_us, is_other=is_other)

    def watch_over(self, stream: SourceStream, now_us: int, *, is_other: bool) -> None:
        """Start heartbeats to neighbours that may lack events, at once if the tree has changed."""
        for each in self.trees.next_to(stream.digest, now_us) or ():
            is_watched = each == stream.parent or each in stream.paces
            if not is_watched and not self._is_complete(stream, each, stream.top):
                pause_us = self._sync_us(each, now_us)
                stream.paces[each] = HeartbeatBackoff(
                    now_us if is_other else now_us + pause_us, pause_us
                )

    def spread(
        self, stream: SourceStream, number: int, kept: BufferedEvent, origin: str, now_us: int
    ) -> None:
        """Forward an event to all neighbours farther from its source."""
        for each in self.trees.next_to(stream.digest, now_us) or ():
            if each not in (origin, stream.parent):
                self._pass_on(each, stream, number, kept, now_us)

    def came(self, stream: SourceStream, now_us: int) -> None:
        """Schedule the acknowledgement of an event that has arrived."""
        stream.unacked += 1
        due_us = now_us if stream.unacked >= _MANY else now_us + _ACK_US
        stream.ack_us = min(stream.ack_us, due_us)
        stream.seek(now_us)

    def synced(
        self, neighbour: str, stream: SourceStream, message: StreamHeartbeat, now_us: int
    ) -> None:
        """Handle a heartbeat; it is acknowledged at once."""
        stream.seek(now_us)
        stream.ack_us = now_us
        self.answering.told(neighbour, message.took_us, now_us)
        if neighbour == stream.parent:
            stream.asked_us = message.said_us

    def asked(self, neighbour: str, stream: SourceStream, message: Nack, now_us: int) -> None:
        """Retransmit the events that a neighbour lacks."""
        left = MAX_ASKED
        ranges = message.ranges[:MAX_ASKED]
        if any(first < stream.base for first, _ in ranges):
            self._tell_base(neighbour, stream, now_us)
        for first, last in ranges:
            begin = max(first, stream.base)
            for number in range(begin, min(last + 1, stream.top + 1, begin + left)):
                kept = stream.events.get(number)
                if kept is not None and not self._is_waiting(neighbour, stream, number):
                    left -= 1
                    self._pass_on(neighbour, stream, number, kept, now_us)

    def acknowledged(self, neighbour: str, stream: SourceStream, message: Ack, now_us: int) -> None:
        """Merge an acknowledgement and schedule passing it on."""
        if message.said_us:
            self.answering.answered(neighbour, message.said_us, now_us)
        beyond = self.trees.beyond(stream.digest, neighbour)
        is_news = stream.report(message.through, beyond)
        if message.base > stream.bases.get(neighbour, 0):
            stream.bases[neighbour] = message.base
        if self._is_complete(stream, neighbour, stream.top):
            stream.paces.pop(neighbour, None)
        elif is_news:
            pause_us = self._sync_us(neighbour, now_us)
            stream.paces[neighbour] = HeartbeatBackoff(now_us + pause_us, pause_us)
        if is_news and stream.parent:
            stream.ack_us = min(stream.ack_us, now_us + _MERGE_US)

    def tend(self, stream: SourceStream, now_us: int) -> None:
        """Run expired timers of a stream."""
        if stream.nack_us <= now_us:
            self._nack(stream, now_us)
        if stream.ack_us <= now_us:
            self._ack(stream, now_us)
        if stream.parent and now_us - stream.heard_us >= QUIET_US:
            stream.paces.clear()
        for neighbour, pace in list(stream.paces.items()):
            if pace.due_us > now_us:
                continue
            if self._is_complete(stream, neighbour, stream.top):
                del stream.paces[neighbour]
                continue
            pace.slow_down(now_us)
            top = self._last_sent(neighbour, stream)
            if now_us - pace.said_us >= _REMIND_US or self._is_to_tell(stream, neighbour, top):
                pace.said_us = now_us
                state = self._state_for(neighbour, stream, top, now_us)
                took_us = self.answering.took_us(neighbour, now_us)
                self._say(neighbour, stream.channel, StreamHeartbeat(state, now_us, took_us))

    def _tell_base(self, neighbour: str, stream: SourceStream, now_us: int) -> None:
        """Schedule a heartbeat to a neighbour that requests events below the base."""
        if neighbour in (self.trees.next_to(stream.digest, now_us) or ()):
            stream.bases.pop(neighbour, None)
            stream.paces[neighbour] = HeartbeatBackoff(now_us, self._sync_us(neighbour, now_us))

    def _pass_on(
        self, neighbour: str, stream: SourceStream, number: int, kept: BufferedEvent, now_us: int
    ) -> None:
        state = self._state_for(neighbour, stream, stream.top, now_us)
        event = msgspec.structs.replace(
            kept.event,
            number=number,
            deadline_us=0,  # checked on delivery: a stream has no holes
            age_us=kept.event.age_us + now_us - kept.at_us,
            note=encode(msgspec.structs.replace(kept.note, state=state)),
        )
        self.context.pass_on(neighbour, event)
        pause_us = self._sync_us(neighbour, now_us)
        stream.paces[neighbour] = HeartbeatBackoff(now_us + pause_us, pause_us, said_us=now_us)

    def _state_for(
        self, neighbour: str, stream: SourceStream, top: int, now_us: int
    ) -> StreamState:
        tree = self.trees.to_attach(neighbour, stream.digest, now_us)
        return StreamState(stream.key, stream.base, top, stream.turn, stream.digest, tree)

    def _last_sent(self, neighbour: str, stream: SourceStream) -> int:
        """The last event that is no longer queued for the link."""
        number = stream.top
        while number >= stream.base and self._is_waiting(neighbour, stream, number):
            number -= 1
        return number

    def _is_to_tell(self, stream: SourceStream, neighbour: str, top: int) -> bool:
        """Whether the neighbour may lack events up to `top`, those not queued for its link.

        If all events are queued no heartbeat is needed: each event carries the stream's state.
        """
        if top == stream.top:
            return True
        return top >= stream.base and not self._is_complete(stream, neighbour, top)

    def _is_waiting(self, neighbour: str, stream: SourceStream, number: int) -> bool:
        return self.context.is_waiting(neighbour, stream.channel, stream.key.source, number)

    def _is_complete(self, stream: SourceStream, neighbour: str, top: int) -> bool:
        """Whether a neighbour and all nodes beyond it have everything up to `top`."""
        if stream.bases.get(neighbour, 0) < stream.base:
            return False
        reports = stream.reports
        return all(
            reports.get(each, -1) >= top for each in self.trees.beyond(stream.digest, neighbour)
        )

    def _nack(self, stream: SourceStream, now_us: int) -> None:
        ranges = stream.missing()
        if ranges:
            self._say(stream.parent, stream.channel, Nack(stream.key, ranges))
            pause_us = self.answering.pause_us(stream.parent, now_us)
            stream.sought(max(3 * self._latency_us(stream.parent), pause_us), now_us)
        else:
            stream.nack_us = NEVER_US

    def _ack(self, stream: SourceStream, now_us: int) -> None:
        stream.ack_us = NEVER_US
        stream.unacked = 0
        through = {self.context.name: stream.done}
        for each in self.trees.next_to(stream.digest, now_us) or ():
            if each != stream.parent:
                for node in self.trees.beyond(stream.digest, each):
                    if node in stream.reports:
                        through[node] = stream.reports[node]
        ack = Ack(stream.key, stream.base, through, stream.asked_us)
        stream.asked_us = 0
        self._say(stream.parent, stream.channel, ack)

    def _sync_us(self, neighbour: str, now_us: int) -> int:
        pause_us = 3 * self._latency_us(neighbour) + _ACK_US
        return max(_MIN_SYNC_US, pause_us, self.answering.pause_us(neighbour, now_us))

    def _latency_us(self, neighbour: str) -> int:
        return self.context.map.latency_us(self.context.name, neighbour) or 0

    def _say(self, neighbour: str, channel: str, message: Message) -> None:
        self.context.say(neighbour, channel, encode(message))
