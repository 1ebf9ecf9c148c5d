"""Sessions with predicates, and a publisher whose events they get or don't get.

One session can't have the same filter twice, but a channel of six levels is selected by 191
filters: each session has as many of them as needed, each with a predicate of its own. That is not
free for a node, which has to look at the predicates of each filter: so there are many sessions.
Publishing
is paced by marks, messages on another channel after every few events: a broker handles what one
connection sends in order, so when a mark arrives all events before it have been matched.
"""

from __future__ import annotations

import select
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter, sleep
from typing import Final

from accord.apps.load.frames import LoadError
from accord.apps.load.mqtt import read_frame
from accord.core.model.event import Event
from accord.core.mqtt.properties import Properties
from accord.predicates import Index
from benchmarks.connections import calmly
from benchmarks.contenders import Broker
from benchmarks.filters import CHANNEL, filters
from benchmarks.mqtt import Mqtt
from benchmarks.workloads import Keyed

SESSIONS: Final = 5_000
PAYLOAD_BYTES: Final = 100
_MARK: Final = "mark"
_MARKS_ON_THE_WAY: Final = 4
_EVENTS_PER_MARK: Final = 50
_READ_BYTES: Final = 256 * 1024
_LITTLE_BYTES: Final = 16 * 1024
_PAUSE_S: Final = 0.001
_STALL_S: Final = 20.0
_NUMBER_BYTES: Final = 4

MQTT: Final = Mqtt(level=5)
# Which session gets which event, and how often.
Deliveries = Counter[tuple[int, int]]
_MARK_FRAME: Final = MQTT.message(_MARK, b"", 0)


def frames(events: Sequence[Event]) -> list[bytes]:
    """Each event as a message: attributes as user properties, its number in the payload."""
    return [
        MQTT.message(
            CHANNEL,
            number.to_bytes(_NUMBER_BYTES) + bytes(PAYLOAD_BYTES - _NUMBER_BYTES),
            0,
            Properties(user=tuple((name, str(value)) for name, value in event.attributes.items())),
        )
        for number, event in enumerate(events)
    ]


class Expected:
    """Who has to get what, by the index in this process."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._index = Index()

    def add(self, predicates: Sequence[Keyed]) -> None:
        for key, predicate in predicates:
            self._index.add(key, predicate)

    def matches(self) -> int:
        return sum(len(self._keys(event)) for event in self._events)

    def deliveries(self) -> Deliveries:
        """Once to each session, however many of its predicates match."""
        return Counter(
            (session, number)
            for number, event in enumerate(self._events)
            for session in {key % SESSIONS for key in self._keys(event)}
        )

    def _keys(self, event: Event) -> list[int]:
        return [key for key in self._index.match(event).keys if isinstance(key, int)]


class Audience:
    """All sessions of one broker, the publisher and the one who waits for marks."""

    def __init__(self, broker: Broker, events: Sequence[Event]) -> None:
        self.broker = broker
        self._frames = frames(events)
        starts = range(0, len(events), _EVENTS_PER_MARK)
        self._chunks = [
            memoryview(b"".join([*self._frames[start : start + _EVENTS_PER_MARK], _MARK_FRAME]))
            for start in starts
        ]
        self._sessions: list[socket.socket] = []
        self._watched: dict[int, socket.socket] = {}
        self._filters = list(filters(CHANNEL))
        self._buffer = bytearray(_READ_BYTES)
        with ExitStack() as stack:
            self._poll = stack.enter_context(select.epoll())
            self._stack = stack
            self._publisher = self._enter(broker.connect(), "publisher")
            self._marked = self._enter(broker.connect(), "marked")
            MQTT.subscribe(self._marked, _MARK)
            self._stack = stack.pop_all()

    def close(self) -> None:
        self._stack.close()

    def gather(self, predicates: Sequence[Keyed]) -> None:
        """Connects the sessions that these predicates need and that are not there."""
        needed = min(SESSIONS, 1 + max((key for key, _ in predicates), default=-1))
        for connection in calmly(self.broker, range(len(self._sessions), needed)):
            self._sessions.append(self._enter(connection, f"session-{len(self._sessions)}"))

    def subscribe(self, predicates: Sequence[Keyed]) -> None:
        """Predicate k goes to session k % SESSIONS, with the next filter that it does not have."""
        by_session: dict[int, list[bytes]] = {}
        for key, predicate in predicates:
            turn, session = divmod(key, SESSIONS)
            frame = MQTT.subscription((self._filters[turn],), turn + 1, str(predicate))
            by_session.setdefault(session, []).append(frame)
        for session, asked in by_session.items():
            connection = self._sessions[session]
            connection.settimeout(_STALL_S + len(asked))
            connection.sendall(b"".join(asked))
            for _ in asked:
                MQTT.check_subscribed(connection)

    def check(self, expected: Deliveries) -> None:
        """One pass, every delivery read and compared with what it has to be."""
        for connection in (self._publisher, self._marked):
            connection.settimeout(_STALL_S)
        self._publisher.sendall(b"".join([*self._frames, _MARK_FRAME]))
        read_frame(self._marked)
        found: Deliveries = Counter()
        for number, connection in enumerate(self._sessions):
            connection.settimeout(_STALL_S)
            connection.sendall(MQTT.fence)
            while (answer := read_frame(connection))[1]:
                found[number, int.from_bytes(answer[1][-PAYLOAD_BYTES:][:_NUMBER_BYTES])] += 1
        if found != expected:
            wrong = (found - expected).total() + (expected - found).total()
            raise LoadError(f"{wrong:,} deliveries differ from what the index says")

    def size_of(self, deliveries: Deliveries) -> int:
        """In bytes: an event comes out as it went in."""
        return sum(len(self._frames[event]) for _, event in deliveries.elements())

    def run(self, passes: int, expected_bytes: int) -> float:
        """Publishes all events `passes` times; seconds until everything has arrived."""
        for connection in (self._publisher, self._marked, *self._sessions):
            connection.setblocking(False)
        started = perf_counter()
        self._drive(passes * len(self._chunks), passes * expected_bytes)
        return perf_counter() - started

    def _drive(self, marks: int, expected_bytes: int) -> None:
        sent, rest = 0, memoryview(b"")
        received = Counter[bool]()  # bytes, of marks and of events
        while (seen := received[True] // len(_MARK_FRAME)) < marks or (
            received[False] < expected_bytes
        ):
            while not rest and sent < min(marks, seen + _MARKS_ON_THE_WAY):
                rest, sent = self._push(self._chunks[sent % len(self._chunks)]), sent + 1
            rest = self._push(rest)
            ready = self._poll.poll(_STALL_S)
            if not ready:
                raise LoadError(f"{received[False]:,} of {expected_bytes:,} bytes came")
            arrived = 0
            for number, _ in ready:
                size = self._watched[number].recv_into(self._buffer)
                if not size:
                    raise LoadError("the broker closed the connection")
                received[number == self._marked.fileno()] += size
                arrived += size
            if arrived < _LITTLE_BYTES:
                sleep(_PAUSE_S)
        if received[False] != expected_bytes:
            raise LoadError(f"{received[False]:,} bytes came, not {expected_bytes:,}")

    def _push(self, rest: memoryview) -> memoryview:
        """What the publisher's socket does not take now."""
        try:
            while rest:
                rest = rest[self._publisher.send(rest) :]
        except BlockingIOError:
            pass
        return rest

    def _enter(self, connection: socket.socket, name: str) -> socket.socket:
        self._stack.enter_context(connection)
        MQTT.enter(connection, name)
        self._watched[connection.fileno()] = connection
        self._poll.register(connection, select.EPOLLIN)
        return connection
