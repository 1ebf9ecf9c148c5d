"""Load for subscribers with predicates, who get some of what is published, or nothing.

What is on its way is known by marks: after each chunk of messages the publisher sends one to
another channel. A broker handles what one connection sends in order, so when a mark arrives all
messages before it have been matched. Who has to get how many of each chunk is known beforehand, and
each subscriber is held to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Final

from benchmarks.contenders import Broker
from benchmarks.contents import DIFFERENT
from benchmarks.ends import Publisher, Subscriber
from benchmarks.filters import CHANNEL
from benchmarks.load import Lane, Plan, Traffic
from benchmarks.selections import MQTT, PAYLOAD_BYTES, Selection, per_chunk
from benchmarks.wire import UnexpectedAnswerError

_MARK: Final = "mark"
# As in ordinary load: no more than 512 KB are on their way, here in few chunks with few marks.
_CHUNK_BYTES: Final = 128 * 1024
_CHUNKS_ON_THE_WAY: Final = 4
_READ_BYTES: Final = 256 * 1024
_SOURCES: Final = 20
_PATIENCE_S: Final = 120.0


class MarkedLane(Lane):
    """`expected` says for each chunk how many messages of it every subscriber gets."""

    def __init__(
        self,
        publisher: Publisher,
        marks: Subscriber,
        receivers: Sequence[Subscriber],
        expected: Sequence[Counter[int]],
        plan: Plan,
    ) -> None:
        super().__init__([publisher], [marks, *receivers], plan)
        self._marks = marks
        self._expected = expected
        self._whole: Counter[int] = sum(expected, Counter())
        self._owed: Counter[int] = Counter()

    @property
    def fenced(self) -> Sequence[Subscriber]:
        # Asking all of them would cost a broker more than many a burst.
        return self.subscribers[:2]

    @property
    def delivered(self) -> int:
        return super().delivered - self._marks.delivered

    @property
    def through(self) -> int:
        return self._marks.delivered * self.plan.chunk

    @property
    def is_done(self) -> bool:
        return self.through == self._target and not self._missing()

    def begin(self, count: int) -> int:
        chunks = -(-count // self.plan.chunk)
        first = self.published // self.plan.chunk
        self._target = (first + chunks) * self.plan.chunk
        cycles, rest = divmod(chunks, len(self._expected))
        new = Counter({session: cycles * each for session, each in self._whole.items()})
        for number in range(first, first + rest):
            new.update(self._expected[number % len(self._expected)])
        self._owed.update(new)
        return new.total()

    def check(self) -> None:
        if missing := self._missing():
            raise UnexpectedAnswerError(f"{missing:,} subscribers got other than they have to")

    def _missing(self) -> int:
        receivers = self.subscribers[1:]
        return sum(self._owed[number] != each.delivered for number, each in enumerate(receivers))


class Selecting(Traffic):
    """Sessions with all predicates of a selection at one broker, and a publisher."""

    def __init__(self, broker: Broker, selection: Selection) -> None:
        super().__init__(MQTT.fence, lambda stack: [_lane(broker, selection, stack)])


def _lane(broker: Broker, selection: Selection, stack: ExitStack) -> MarkedLane:
    content = selection.content
    frame = content.frame(MQTT, CHANNEL, PAYLOAD_BYTES)
    delivery = MQTT.delivery_of(frame, CHANNEL)
    receivers = []
    for session in range(selection.sessions):
        connection = stack.enter_context(broker.connect(f"127.0.0.{2 + session % _SOURCES}"))
        connection.settimeout(_PATIENCE_S)
        MQTT.enter(connection, f"session-{session}")
        asked = selection.subscriptions(session)
        connection.sendall(b"".join(asked))
        for _ in asked:
            MQTT.check_subscribed(connection)
        receivers.append(Subscriber(connection, delivery, _READ_BYTES))
    marks, publisher = (stack.enter_context(broker.connect()) for _ in range(2))
    MQTT.enter(marks, "marks")
    MQTT.subscribe(marks, _MARK)
    MQTT.enter(publisher, "publisher")
    chunk = _CHUNK_BYTES // len(frame)
    plan = Plan(chunk, _CHUNKS_ON_THE_WAY * chunk)
    count = -(-DIFFERENT // chunk) * chunk
    mark = MQTT.message(_MARK, b"", 0)
    frames = content.frames(MQTT, (CHANNEL,), PAYLOAD_BYTES, range(count))
    starts = range(0, count, chunk)
    chunks = [b"".join(chain(frames[start : start + chunk], [mark])) for start in starts]
    return MarkedLane(
        Publisher(publisher, chunks, chunk, has_acks=False),
        Subscriber(marks, MQTT.delivery_of(mark, _MARK), _READ_BYTES),
        receivers,
        per_chunk(selection.receivers(count), chunk),
        plan,
    )
