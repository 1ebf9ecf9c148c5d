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

from accord.apps.load.traffic import LoadClient, LoadPublisher, Plan
from benchmarks.contenders import Broker
from benchmarks.contents import DIFFERENT
from benchmarks.filters import CHANNEL
from benchmarks.load import BurstLane, Bursts, in_turns, subscriber
from benchmarks.selections import MQTT, PAYLOAD_BYTES, Selection, per_chunk

_MARK: Final = "mark"
# As in ordinary load: no more than 512 KB are on their way, here in few chunks with few marks.
_CHUNK_BYTES: Final = 128 * 1024
_CHUNKS_ON_THE_WAY: Final = 4
_SOURCES: Final = 20
_PATIENCE_S: Final = 120.0


class MarkedLane(BurstLane):
    """`expected` says for each chunk how many messages of it every subscriber gets."""

    def __init__(
        self,
        publisher: LoadPublisher,
        marks: LoadClient,
        receivers: Sequence[LoadClient],
        expected: Sequence[Counter[int]],
        plan: Plan,
    ) -> None:
        super().__init__([publisher], [marks, *receivers], plan)
        self._marks = marks
        self._expected = expected
        self._whole: Counter[int] = sum(expected, Counter())
        self._owed: Counter[int] = Counter()

    @property
    def fenced(self) -> Sequence[LoadClient]:
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
        return self.through == self.target and not self._missing()

    def begin(self, count: int) -> int:
        chunks = -(-count // self.plan.chunk)
        first = self.published // self.plan.chunk
        self.target = (first + chunks) * self.plan.chunk
        cycles, rest = divmod(chunks, len(self._expected))
        new = Counter({session: cycles * each for session, each in self._whole.items()})
        for number in range(first, first + rest):
            new.update(self._expected[number % len(self._expected)])
        self._owed.update(new)
        return new.total()

    def _missing(self) -> int:
        receivers = self.subscribers[1:]
        return sum(self._owed[number] != each.delivered for number, each in enumerate(receivers))


class Selecting(Bursts):
    """Sessions with all predicates of a selection at one broker, and a publisher."""

    def __init__(self, broker: Broker, selection: Selection) -> None:
        super().__init__(lambda stack: [_lane(broker, selection, stack)])


def _lane(broker: Broker, selection: Selection, stack: ExitStack) -> MarkedLane:
    content = selection.content
    frame = content.frame(MQTT, CHANNEL, PAYLOAD_BYTES)
    receivers = []
    for session in range(selection.sessions):
        connection = stack.enter_context(broker.connect(f"127.0.0.{2 + session % _SOURCES}"))
        connection.settimeout(_PATIENCE_S)
        MQTT.enter(connection, f"session-{session}")
        asked = selection.subscriptions(session)
        connection.sendall(b"".join(asked))
        for _ in asked:
            MQTT.check_subscribed(connection)
        receivers.append(subscriber(connection, MQTT, len(frame)))
    marks, publisher = (stack.enter_context(broker.connect()) for _ in range(2))
    MQTT.enter(marks, "marks")
    MQTT.subscribe(marks, _MARK)
    MQTT.enter(publisher, "publisher")
    chunk = _CHUNK_BYTES // len(frame)
    plan = Plan(_CHUNKS_ON_THE_WAY * chunk, chunk)
    count = -(-DIFFERENT // chunk) * chunk
    mark = MQTT.message(_MARK, b"", 0)
    frames = content.frames(MQTT, (CHANNEL,), PAYLOAD_BYTES, range(count))
    starts = range(0, count, chunk)
    chunks = [b"".join(chain(frames[start : start + chunk], [mark])) for start in starts]
    return MarkedLane(
        LoadPublisher(publisher, MQTT, in_turns(chunks, chunk), plan.window),
        subscriber(marks, MQTT, len(mark)),
        receivers,
        per_chunk(selection.receivers(count), chunk),
        plan,
    )
