"""Requests to other nodes and their answers: both sides, at one node.

A request is repeated until the other node answers or says that it works on it; after some silence,
or at the latest after `LIMIT_US`, it has timed out. The other node performs a request once while it
works on it, and keeps nothing afterwards: requests only read, so a repetition that arrives late is
performed again. Each node announces that it answers requests.

The driver sends with `request`, executes `orders`, and takes the `outcomes`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.channels.control_unicast import ControlUnicast, HopAck, UnicastMessage
from accord.core.channels.node_requests.messages import (
    MAX_REQUEST,
    AnswerPending,
    NodeAnswer,
    NodeMessage,
    NodeQuestion,
    RequestOutcome,
    RequestResult,
    bodies,
    encode,
    is_valid,
    unpack,
)
from accord.core.channels.template import Context, Template
from accord.core.model.bounded import FairQuota
from accord.core.model.errors import decode_or_none
from accord.core.overlay.state_store import StateStore

REQUESTS: Final = "requests"  # kind of state record: the node answers requests
_RECORD_BYTES: Final = 1 << 10  # share of the node's state records reserved for this kind
MAX_PENDING: Final = 64  # own requests
MAX_WORKING: Final = 32  # requests of others at a time; a single node gets half
RETRY_US: Final = 1_000_000
SILENCE_US: Final = 4_000_000
LIMIT_US: Final = 15_000_000
_ID_STEP: Final = 1_000_000  # of ids, per incarnation

_unicasts: Final[msgspec.msgpack.Decoder[UnicastMessage | HopAck]] = msgspec.msgpack.Decoder(
    UnicastMessage | HopAck
)


class NodeOrder(msgspec.Struct, frozen=True):
    """Perform a request of another node; then call `reply`."""

    to: str
    question: NodeQuestion


class _Pending:
    """An own request that is not answered yet."""

    __slots__ = ("limit_us", "node", "question", "repeat_us", "silence_us")

    def __init__(self, node: str, question: NodeQuestion, now_us: int) -> None:
        self.node = node
        self.question = question
        self.repeat_us = now_us + RETRY_US
        self.silence_us = now_us + SILENCE_US
        self.limit_us = now_us + LIMIT_US

    @property
    def due_us(self) -> int:
        return min(self.repeat_us, self.end_us)

    @property
    def end_us(self) -> int:
        return min(self.silence_us, self.limit_us)


class NodeRequests(Template):
    """Requests of one node to others, and those of others to it.

    `dropped` counts invalid messages, `refused` requests of others that found no room.
    """

    def __init__(self, context: Context, store: StateStore) -> None:
        super().__init__(context)
        self.unicast = ControlUnicast(
            context.name, context.incarnation, context.map, self._send_hop, self._on_unicast
        )
        self.orders: list[NodeOrder] = []
        self.outcomes: list[RequestOutcome] = []
        self.dropped = 0
        self.refused = 0
        self._store = store
        self._last_id = context.incarnation * _ID_STEP
        self._pending: dict[int, _Pending] = {}
        self._working: dict[tuple[str, int], bool] = {}
        self._shares = FairQuota(MAX_WORKING)
        store.reserve(REQUESTS, _RECORD_BYTES)
        store.put(REQUESTS, "", b"")

    # ------------------------------------------------------------------------------ for the driver

    def nodes(self) -> list[str]:
        """Reachable nodes that answer requests, without this one."""
        reached = self.context.map.distances(self.context.name).costs
        return [name for name in self.known_nodes() if name in reached]

    def known_nodes(self) -> list[str]:
        """Nodes that answer requests while they are reachable, without this one."""
        found = {origin for origin, _, _ in self._store.all(REQUESTS)}
        return sorted(found - {self.context.name})

    def request(
        self, node: str, topic: str, body: bytes, rights: bytes, now_us: int
    ) -> RequestOutcome | int:
        """Send a request; returns its id, or its outcome if it can't be sent."""
        if problem := self._problem_with(node):
            return RequestOutcome(0, node, problem)
        if len(self._pending) >= MAX_PENDING:
            return RequestOutcome(0, node, RequestResult.BUSY)
        if len(body) + len(rights) > MAX_REQUEST:
            return RequestOutcome(0, node, RequestResult.TOO_LARGE)
        self._last_id += 1
        question = NodeQuestion(self._last_id, topic, body, rights)
        self._pending[question.id] = _Pending(node, question, now_us)
        self._post(node, question, now_us)
        return question.id

    def cancel(self, number: int) -> None:
        """Forget an own request: nobody waits for its answer."""
        self._pending.pop(number, None)

    def reply(self, order: NodeOrder, packed: bytes, now_us: int, *, is_done: bool) -> None:
        """Send the packed answer of an order, or the problem."""
        self._finish(order.to, order.question.id)
        self._post(order.to, NodeAnswer(order.question.id, is_done, packed), now_us)

    # ---------------------------------------------------------------------------------- template

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_unicasts, body)
        if message is None:
            self.dropped += 1
        elif isinstance(message, UnicastMessage):
            self.unicast.on_message(neighbour, channel, message, now_us)
        else:
            self.unicast.on_ack(neighbour, message)

    def advance(self, now_us: int) -> None:
        for number, each in list(self._pending.items()):
            if each.end_us <= now_us:
                self._end(number, RequestResult.TIMED_OUT)
            elif each.repeat_us <= now_us:
                each.repeat_us = now_us + RETRY_US
                self._post(each.node, each.question, now_us)
        self.unicast.advance(now_us)

    def next_due_us(self) -> int | None:
        dues = [each.due_us for each in self._pending.values()]
        due_us = self.unicast.next_due_us()
        return min(dues if due_us is None else [*dues, due_us], default=None)

    def retained_state(self) -> dict[str, int]:
        return {
            "unicasts": len(self.unicast),
            "requests pending": len(self._pending),
            "requests in work": len(self._working),
        }

    def check_invariants(self) -> None:
        assert len(self._pending) <= MAX_PENDING
        assert len(self._working) == self._shares.count
        self._shares.check_invariants()
        self.unicast.check_invariants()

    # --------------------------------------------------------------------------------- internals

    def _problem_with(self, node: str) -> RequestResult | None:
        known = self.context.map
        if known.is_reachable(self.context.name, node):
            # Its records come later than its links.
            is_seen = self._store.version_of(node)[0] > 0
            return RequestResult.TOO_OLD if is_seen and not self._answers(node) else None
        is_known = node in known.nodes() or self._answers(node)
        return RequestResult.UNREACHABLE if is_known else RequestResult.UNKNOWN

    def _answers(self, node: str) -> bool:
        return self._store.get(node, REQUESTS, "") is not None

    def _end(self, number: int, result: RequestResult, body: bytes = b"") -> None:
        ended = self._pending.pop(number)
        self.outcomes.append(RequestOutcome(number, ended.node, result, body))

    def _finish(self, origin: str, number: int) -> None:
        if self._working.pop((origin, number), False):
            self._shares.release(origin)

    def _post(self, to: str, message: NodeMessage, now_us: int) -> None:
        self.unicast.send(to, "", encode(message), now_us)

    def _send_hop(self, neighbour: str, channel: str, message: UnicastMessage | HopAck) -> None:
        self.context.send_message(neighbour, channel, encode(message))

    def _on_unicast(self, origin: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        message = decode_or_none(bodies, body)
        match message:
            case NodeQuestion() if is_valid(message):
                self._on_question(origin, message, now_us)
            case NodeAnswer():
                self._on_answer(origin, message)
            case AnswerPending():
                pending = self._pending.get(message.id)
                if pending is not None and pending.node == origin:
                    pending.silence_us = now_us + SILENCE_US
            case _:
                self.dropped += 1

    def _on_question(self, origin: str, question: NodeQuestion, now_us: int) -> None:
        key = origin, question.id
        if key in self._working:
            self._post(origin, AnswerPending(question.id), now_us)
        elif not self._shares.has_room(origin):
            self.refused += 1
            self._post(origin, NodeAnswer(question.id, is_done=False, packed=b""), now_us)
        else:
            self._working[key] = True
            self._shares.take(origin)
            self.orders.append(NodeOrder(origin, question))

    def _on_answer(self, origin: str, answer: NodeAnswer) -> None:
        pending = self._pending.get(answer.id)
        if pending is None or pending.node != origin:
            return
        if not answer.is_done and not answer.packed:
            self._end(answer.id, RequestResult.BUSY)
            return
        body = unpack(answer.packed)
        if body is None:
            self.dropped += 1
            self._end(answer.id, RequestResult.UNREADABLE)
        else:
            self._end(
                answer.id, RequestResult.ANSWERED if answer.is_done else RequestResult.REFUSED, body
            )
