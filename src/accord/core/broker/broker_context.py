"""State shared by all connections and sessions of a node, and their interface to the driver.

The driver sets the time, passes bytes to connections, and then collects from here: tasks to run,
connections with something to send (`dirty`), records for the two logs, requests to the node itself,
and work for worker processes (`orders`). A reply that promises durability is held until the driver
reports that everything appended before it is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from accord.core.broker.message import MqttMessage
from accord.core.broker.session_records import (
    AtomicRecords,
    SessionLogRecord,
    encode_record,
    stored_record,
)
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.counters import Counters
from accord.core.monitoring.ledger import Ledger
from accord.core.monitoring.recent_changes import RecentChanges
from accord.core.monitoring.sightings import Sightings
from accord.core.router.limits import Limits
from accord.core.router.message import Message
from accord.core.router.rights import Rights
from accord.core.router.router import Router
from accord.core.scheduling.link_estimator import LinkEstimator
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.core.scheduling.strategies import Discipline
from accord.core.scheduling.tasks import Task, Tasks

if TYPE_CHECKING:
    from accord.core.broker.publish_handler import PublishHandler
    from accord.core.broker.reply_queue import ReplyQueue

NUMBERS_PER_MS: Final = 1_000_000  # event numbers per millisecond: more than can occur
# Larger groups are written as single records, as the log bounds the size of a record.
_MAX_ATOMIC_BYTES: Final = 1 << 26


class ConnectionPort:
    """A network connection as sessions see it."""

    __slots__ = (
        "is_dirty",
        "link",
        "publisher",
        "replies",
        "write",
    )
    replies: ReplyQueue

    def __init__(self) -> None:
        self.is_dirty = False
        self.link = LinkEstimator()
        # The driver's direct write to the network; None while it accepts nothing at once.
        self.write: Callable[[bytes], None] | None = None
        self.publisher: PublishHandler | None = None  # while the connection is open


class CommitWaiter:
    """Waits until the logs are on disk up to `position`."""

    def __init__(self) -> None:
        self.position = 0

    def release(self) -> None:
        raise NotImplementedError


class ShapingWaiter(CommitWaiter):
    """Waits until a message is shaped."""

    def on_shaped(self, message: MqttMessage | None) -> None:
        """Continue with the shaped message, or with the original if None."""
        raise NotImplementedError


class JournalCut:
    """A position between the events kept before it was requested and those kept later.

    `kept` is the number of events not yet appended to the journal at that time; `offset` is -1
    until it is known.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.offset = -1

    def set_offset(self, offset: int) -> None:
        """The first event after the cut has this journal offset or a later one."""
        self.offset = offset


class KeptRun(NamedTuple):
    """Events of one channel for the journal, as frames; `number` is the first event's."""

    frames: bytes
    is_v5: bool
    events: int
    channel: str
    publisher: str
    qos: int
    number: int
    received_ms: int


class WorkerOrder:
    """Slow work on a message, done by another process."""

    def __init__(self, message: MqttMessage, importance: int, due_ms: int) -> None:
        self.message = message
        self.importance = importance
        self.due_ms = due_ms

    def fail(self) -> None:
        """Continue without the result: no worker could do it."""
        raise NotImplementedError


class NodeRequest:
    """A message to the node itself, and the destination of the reply."""

    def __init__(self, message: MqttMessage, client: str, user: str, rights: Rights | None) -> None:
        self.message = message
        self.client = client
        self.user = user
        self.rights = rights  # None: unrestricted

    def may_subscribe(self, pattern: str) -> bool:
        return self.rights is None or self.rights.may_subscribe(pattern)

    def may_publish(self, channel: str) -> bool:
        return self.rights is None or self.rights.may_publish(channel)

    def may_see_statistics(self) -> bool:
        return self.rights is None or self.rights.statistics

    def may_change_policies(self) -> bool:
        return self.rights is None or self.rights.policies


class BrokerContext:
    def __init__(
        self, limits: Limits, router: Router, *, is_durable: bool, now_ms: int, node: str = ""
    ) -> None:
        self.limits = limits
        self.node = node
        # Whether event numbers here are also the event IDs at other nodes; not at a secondary node.
        self.assigns_event_ids = True
        self.router = router
        self.is_durable = is_durable
        self.now_ms = now_ms
        self.number = now_ms * NUMBERS_PER_MS  # last event number, unique across restarts
        # The last event number when a journal cut was last announced to another node.
        self.cut_number = 0
        self.counters = Counters(started_ms=now_ms)
        self.ledger = Ledger()
        self.sightings = Sightings()
        self.changes = RecentChanges()
        self.discipline = Discipline()
        self.tasks = Tasks(
            count_limit=limits.tasks, bytes_limit=limits.task_bytes, discipline=self.discipline
        )
        self.is_shaping = True
        self.has_workers = False  # whether worker processes accept orders
        self.orders: list[WorkerOrder] = []
        self.shapings: dict[tuple[int, ShapingTarget], WorkerOrder] = {}  # in progress
        self.requests: list[NodeRequest] = []
        self.request_topics: frozenset[str] = frozenset()  # what the driver answers
        self.dirty: list[ConnectionPort] = []
        # Positions count the records of both logs together.
        self.appended = 0
        self.committed = 0
        self.state_records: list[bytes] = []
        self.kept: list[Message | KeptRun] = []
        self.cuts: list[JournalCut] = []
        # Why history is unavailable; empty if it is available.
        self.history_problem = "nothing is kept here"
        self.held: deque[CommitWaiter] = deque()
        self.overload_cause = ""  # why nothing can be recorded for now
        self._last_record_number = 0

    def wake(self, connection: ConnectionPort) -> None:
        """Have the driver pull from `connection`."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    def assign_number(self, message: MqttMessage, counts: ChannelCounts) -> None:
        """Assign the next event number to a received message."""
        self.number += 1
        message.number = self.number
        message.counts = counts

    def assign_numbers(self, count: int) -> range:
        """Allocate the numbers of `count` received messages."""
        first = self.number + 1
        self.number += count
        return range(first, first + count)

    def submit(self, task: Task) -> None:
        """Queue `task`; tasks that exceed the limits are shed."""
        shed = self.tasks.put(task)
        if shed is not None:
            for each in shed:
                each.shed()

    def record(self, record: SessionLogRecord) -> None:
        """Append to the state log."""
        if self.is_durable:
            self.state_records.append(encode_record(record))
            self.appended += 1

    def make_atomic(self, start: int) -> None:
        """Make the records from `start` on atomic: a crash keeps all of them or none."""
        records = self.state_records[start:]
        if len(records) > 1 and sum(map(len, records)) <= _MAX_ATOMIC_BYTES:
            self.state_records[start:] = [encode_record(AtomicRecords(tuple(records)))]

    def keep(self, message: Message) -> None:
        if self.is_durable:
            self.kept.append(message)
            self.appended += 1

    def keep_run(self, run: KeptRun) -> None:
        if self.is_durable:
            self.kept.append(run)
            self.appended += 1

    def kept_events(self) -> int:
        """Number of events not yet handed to the journal."""
        return sum(each.events if isinstance(each, KeptRun) else 1 for each in self.kept)

    def store(self, message: MqttMessage) -> int:
        """The number by which records refer to `message`; records the message if necessary."""
        if not message.stored_as:
            message.stored_as = self.new_record_number()
            self.record(stored_record(message.stored_as, message))
        return message.stored_as

    def new_record_number(self, count: int = 1) -> int:
        """Allocate `count` record numbers; returns the first."""
        first = self._last_record_number + 1
        self._last_record_number += count
        return first

    def restore_record_number(self, number: int) -> None:
        self._last_record_number = max(self._last_record_number, number)

    def hold(self, held: CommitWaiter) -> None:
        """Release `held` once everything recorded so far is on disk."""
        held.position = self.appended
        self.held.append(held)

    def has_pending(self) -> bool:
        return self.committed < self.appended

    def advance_committed(self, position: int) -> None:
        """Everything up to `position` is on disk: release what waited for it."""
        self.committed = max(self.committed, position)
        while self.held and self.held[0].position <= self.committed:
            self.held.popleft().release()
