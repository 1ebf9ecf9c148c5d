"""CPU tasks: a bounded queue of work, also for workers, in the order of the node's strategy.

The cost is time here instead of bytes, and a task's cost is estimated per channel. Otherwise tasks
are queued like any entry. Promised tasks (`is_promised`) are queued regardless of the limits and
never shed; callers check `should_pause` before they accept more, so overload reaches unimportant
publishers as backpressure before anything is shed, and important ones last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.lanes import LIGHT_US, Bin, CostEstimate, Lane, bin_of
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.queues import Queues
from accord.core.scheduling.strategies import Discipline

# Assumed cost of a task of a new channel.
UNKNOWN_US: Final = 100
CHANNELS_LIMIT: Final = 10_000


class Task(QueueEntry):
    """Work for one event or a run; subclasses implement `run`."""

    def __init__(
        self,
        size: int,
        cost_us: int,
        importance: int,
        queued_ms: int,
        due_ms: int = 0,
        bin_: int = -1,
        is_promised: bool = False,
        count: int = 1,
        number: int = 0,
    ) -> None:
        self.size = size
        self.count = count
        self.importance = importance
        self.queued_ms = queued_ms
        self.expires_ms = due_ms
        self.number = number
        self.bin = bin_ if bin_ >= 0 else bin_of(importance, cost_us, LIGHT_US)
        self.cost_us = cost_us
        self.is_promised = is_promised

    @property
    def due_ms(self) -> int:
        """When it should be done, 0 without deadline."""
        return self.expires_ms

    def cost(self, wanted: int) -> int:  # noqa: ARG002
        return self.cost_us if self.cost_us > 0 else 1

    def run(self) -> None:
        raise NotImplementedError

    def record_cost(self, spent_us: int) -> None:
        """Learn from the time it has run."""

    def shed(self) -> None:
        """Notify those concerned that it will never run."""


class Tasks(Queues):
    """The tasks that wait for the CPU."""

    def __init__(
        self, *, count_limit: int, bytes_limit: int, discipline: Discipline | None = None
    ) -> None:
        super().__init__(discipline)
        self.count_limit = count_limit
        self.bytes_limit = bytes_limit
        self.waiting = 0
        self.bytes = 0
        self._promised = 0
        self._promised_bytes = 0
        self._costs: dict[str, CostEstimate] = {}

    def put(self, task: Task) -> list[Task] | None:
        """Queue `task`; returns what was shed for it, possibly the task itself.

        The least important is shed, and among equals the oldest. The caller calls `shed`.
        """
        is_promised = task.is_promised
        if not is_promised and not self._could_fit(task):
            return [task]
        found = self._last
        if found is None or found.bin != task.bin:
            found = self._bin(task)
        lane = found.tracked if is_promised else found.untracked
        if self._by_due:
            lane.insert(task)
        else:
            lane.items.append(task)
        self.waiting += 1
        self.bytes += task.size
        if is_promised:
            self._promised += 1
            self._promised_bytes += task.size
        if self.waiting <= self.count_limit and self.bytes <= self.bytes_limit:
            return None
        return self._shed() or None

    def put_first(self, task: Task) -> None:
        """Requeue a task that has more to do, at the head of its bin."""
        found = self._bin(task)
        lane = found.tracked if task.is_promised else found.untracked
        lane.put_first(task)
        self.waiting += 1
        self.bytes += task.size
        if task.is_promised:
            self._promised += 1
            self._promised_bytes += task.size

    def take(self) -> Task | None:
        """Remove the next task to run."""
        if self.waiting == 0:
            return None
        if self._version != self.discipline.version:
            self._adapt()
        if len(self._bins) == 1:
            return self._pop(self._bins[0])
        active = self._active(1, 0)
        if len(active) == 1:
            chosen = active[0]
            chosen.deficit = 0
        else:
            strategy = self.discipline.current
            chosen = strategy.choose(active)
            strategy.charge(active, chosen, chosen.cost)
        return self._pop(chosen)

    def record_cost(self, channel: str, spent_us: int) -> None:
        """Record the time a task of `channel` took."""
        self.cost_estimate(channel).add(spent_us)

    def cost_estimate(self, channel: str) -> CostEstimate:
        """The cost estimate for `channel`; frequent callers keep it."""
        learned = self._costs.get(channel)
        if learned is None:
            if len(self._costs) >= CHANNELS_LIMIT:
                # The oldest estimate: if still in use, it is soon learned again.
                del self._costs[next(iter(self._costs))]
            learned = self._costs[channel] = CostEstimate(LIGHT_US)
        return learned

    def cost_of(self, channel: str) -> int:
        """Expected cost of a task of `channel`, in microseconds."""
        learned = self._costs.get(channel)
        return UNKNOWN_US if learned is None or not learned.is_known else int(learned.mean)

    def should_pause(self, importance: int) -> bool:
        """Whether publishers of this importance should be paused."""
        share = importance + 1
        return (
            self.waiting * (IMPORTANCES + 1) > self.count_limit * share
            or self.bytes * (IMPORTANCES + 1) > self.bytes_limit * share
        )

    def can_resume(self, importance: int) -> bool:
        """Whether paused publishers may resume: at half the threshold for pausing."""
        share = importance + 1
        return (
            self.waiting * (IMPORTANCES + 1) * 2 <= self.count_limit * share
            and self.bytes * (IMPORTANCES + 1) * 2 <= self.bytes_limit * share
        )

    def check_invariants(self) -> None:
        self._check_bins()
        promised = [each for one in self._bins for each in one.tracked.waiting()]
        others = [each for one in self._bins for each in one.untracked.waiting()]
        assert self._promised == len(promised)
        assert self._promised_bytes == sum(each.size for each in promised)
        assert self.waiting == len(promised) + len(others)
        assert self.bytes == self._promised_bytes + sum(each.size for each in others)
        assert not others or (self.waiting <= self.count_limit and self.bytes <= self.bytes_limit)
        assert len(self._costs) <= CHANNELS_LIMIT

    def _could_fit(self, task: Task) -> bool:
        """Whether there would be room if everything not promised were shed."""
        return (
            self._promised < self.count_limit
            and self._promised_bytes + task.size <= self.bytes_limit
        )

    def _pop(self, chosen: Bin) -> Task:
        lane = chosen.open_lane(1, self._by_due)
        assert lane is not None
        task = lane.pop_first()
        assert isinstance(task, Task)
        self._uncount(task)
        if chosen.deficit != 0:
            chosen.clear_deficit()
        return task

    def _shed(self) -> list[Task]:
        shed: list[Task] = []
        for each in reversed(self._bins):
            lane: Lane = each.untracked
            while not lane.is_empty() and (
                self.waiting > self.count_limit or self.bytes > self.bytes_limit
            ):
                task = lane.shed(self._by_due)
                assert isinstance(task, Task)
                self._uncount(task)
                shed.append(task)
            each.clear_deficit()
        return shed

    def _uncount(self, task: Task) -> None:
        self.waiting -= 1
        self.bytes -= task.size
        if task.is_promised:
            self._promised -= 1
            self._promised_bytes -= task.size


class WorkerJob(Task):
    """A job; `work` describes it in terms of its executor.

    `done` is called exactly once with the outcome and the microseconds spent. The cost of jobs is
    estimated per `channel`.
    """

    def __init__(
        self,
        work: Any,
        done: Callable[[Any, int], None],
        size: int,
        cost_us: int,
        importance: int,
        queued_ms: int,
        due_ms: int = 0,
        channel: str = "",
        number: int = 0,
    ) -> None:
        super().__init__(size, cost_us, importance, queued_ms, due_ms, number=number)
        self.work = work
        self.done = done
        self.channel = channel
