from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.strategies import FIFO, LAXITY, STRICT, WEIGHTED_FAIR, Discipline
from accord.core.scheduling.tasks import CHANNELS_LIMIT, UNKNOWN_US, Task, Tasks


def job(
    importance: int = 3,
    *,
    size: int = 1,
    cost_us: int = 100,
    queued_ms: int = 0,
    due_ms: int = 0,
    is_promised: bool = False,
) -> Task:
    return Task(size, cost_us, importance, queued_ms, due_ms, is_promised=is_promised)


def queue(
    count_limit: int = 100, bytes_limit: int = 1_000, discipline: Discipline | None = None
) -> Tasks:
    return Tasks(count_limit=count_limit, bytes_limit=bytes_limit, discipline=discipline)


def put_all(tasks: Tasks, jobs: list[Task]) -> None:
    for each in jobs:
        assert tasks.put(each) is None


def taken(tasks: Tasks) -> list[Task]:
    order: list[Task] = []
    while (task := tasks.take()) is not None:
        order.append(task)
    return order


def test_the_important_runs_first_and_light_before_heavy() -> None:
    tasks = queue()
    heavy, light, urgent = job(cost_us=5_000), job(), job(importance=7, cost_us=9_000)
    put_all(tasks, [heavy, light, urgent])
    assert tasks.depth() == [0, 0, 0, 2, 0, 0, 0, 1]
    assert taken(tasks) == [urgent, light, heavy]
    assert (tasks.waiting, tasks.bytes, tasks.take()) == (0, 0, None)


def test_promised_or_not_the_older_runs_first() -> None:
    tasks = queue()
    jobs = [job(queued_ms=time, is_promised=time % 2 == 0) for time in range(6)]
    put_all(tasks, jobs)
    assert taken(tasks) == jobs


def test_full_the_oldest_of_the_least_important_gives_way() -> None:
    tasks = queue(count_limit=3)
    old, young, important = job(queued_ms=1), job(queued_ms=2), job(importance=4)
    put_all(tasks, [old, young, important])
    assert tasks.put(newcomer := job(queued_ms=3)) == [old]
    assert tasks.put(least := job(importance=0)) == [least]
    assert taken(tasks) == [important, young, newcomer]


def test_what_is_promised_is_queued_beyond_the_limits_and_never_shed() -> None:
    tasks = queue(count_limit=2)
    plain = job(importance=7)
    put_all(tasks, [plain, job(importance=0, is_promised=True)])
    assert tasks.put(job(importance=0, is_promised=True)) == [plain]
    assert tasks.put(job(importance=0, is_promised=True)) is None
    assert tasks.waiting == 3
    assert tasks.put(plain) == [plain], "there is no room for it"
    assert len(taken(tasks)) == 3


def test_nothing_gives_way_to_what_does_not_fit_anyway() -> None:
    tasks = queue(bytes_limit=10)
    put_all(tasks, [job(size=4, is_promised=True), job(importance=0, size=4)])
    assert tasks.put(large := job(importance=7, size=7)) == [large]
    assert tasks.waiting == 2


def test_costs_are_learned_by_channel() -> None:
    tasks = queue()
    assert tasks.cost_of("images") == UNKNOWN_US
    tasks.record_cost("images", 4_000)
    assert tasks.cost_of("images") == 4_000
    for _ in range(50):
        tasks.record_cost("images", 2_000)
    assert 1_990 <= tasks.cost_of("images") <= 2_010
    assert not tasks.cost_estimate("images").is_light
    assert tasks.cost_of("tracks") == UNKNOWN_US


def test_channels_are_bounded() -> None:
    tasks = queue()
    for number in range(CHANNELS_LIMIT + 5):
        tasks.record_cost(f"channel {number}", 7)
    tasks.check_invariants()
    assert tasks.cost_of("channel 4") == UNKNOWN_US
    assert tasks.cost_of("channel 5") == 7


def test_the_unimportant_are_held_back_first() -> None:
    tasks = queue(count_limit=90)
    pressed: list[list[int]] = []
    for _ in range(9):
        put_all(tasks, [job() for _ in range(10)])
        pressed.append([each for each in range(IMPORTANCES) if tasks.should_pause(each)])
    assert pressed == [list(range(number)) for number in range(9)]
    tasks.put(job(is_promised=True))
    assert tasks.should_pause(7)


def test_those_held_back_go_on_only_when_there_is_room_again() -> None:
    tasks = queue(bytes_limit=900)
    put_all(tasks, [job(size=10) for _ in range(11)])
    assert tasks.should_pause(0)
    assert not tasks.should_pause(1)
    while tasks.should_pause(0):
        tasks.take()
    assert not tasks.can_resume(0)
    while not tasks.can_resume(0):
        tasks.take()
    assert tasks.bytes == 50


def test_time_is_shared_by_weight() -> None:
    tasks = queue(10_000, 10_000, Discipline(WEIGHTED_FAIR, [1, 1, 1, 1, 1, 3, 1, 1]))
    spent = [0] * IMPORTANCES
    put_all(tasks, [job(importance=3, cost_us=300) for _ in range(400)])
    put_all(tasks, [job(importance=5, cost_us=50) for _ in range(4_000)])
    while sum(spent) < 100_000:
        task = tasks.take()
        assert task is not None
        spent[task.importance] += task.cost_us
    assert spent[5] / sum(spent) == pytest.approx(0.75, rel=0.02)


def test_laxity_takes_what_is_due_first() -> None:
    tasks = queue(discipline=Discipline(LAXITY))
    jobs = [
        job(importance=number % 3, due_ms=due, is_promised=number % 2 == 0)
        for number, due in enumerate((50, 0, 20, 40, 10, 30, 0))
    ]
    put_all(tasks, jobs)
    assert [task.expires_ms for task in taken(tasks)] == [10, 20, 30, 40, 50, 0, 0]


def test_a_task_says_what_it_does() -> None:
    with pytest.raises(NotImplementedError):
        job().run()
    job().shed()
    assert job(due_ms=7).due_ms == 7


STRATEGIES: Final = st.sampled_from([STRICT, WEIGHTED_FAIR, LAXITY, FIFO])


class TasksMachine(RuleBasedStateMachine):
    """Whatever happens, each task is run or shed once, and promises are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.discipline = Discipline(STRICT)
        self.tasks = queue(8, 40, self.discipline)
        self.waiting: list[Task] = []
        self.now_ms = 0

    @rule(
        importance=st.integers(0, 7),
        size=st.integers(1, 12),
        cost_us=st.sampled_from([0, 10, 900, 5_000]),
        due=st.integers(0, 9),
        is_promised=st.booleans(),
    )
    def put(self, importance: int, size: int, cost_us: int, due: int, is_promised: bool) -> None:
        self.now_ms += 1
        due_ms = self.now_ms + due if due else 0
        task = Task(size, cost_us, importance, self.now_ms, due_ms, is_promised=is_promised)
        self.waiting.append(task)
        shed = self.tasks.put(task) or []
        for each in shed:
            assert not each.is_promised
            self.waiting.remove(each)
        kept = [each for each in self.waiting if not each.is_promised]
        assert all(gone.bin <= each.bin for gone in shed for each in kept) or shed == [task]

    @rule()
    def take(self) -> None:
        task = self.tasks.take()
        if task is None:
            assert not self.waiting
            return
        dues = [each.due_ms or 1_000_000 for each in self.waiting]
        strategy = self.discipline.strategy
        if strategy == STRICT:
            assert task.bin == max(each.bin for each in self.waiting)
        elif strategy == LAXITY:
            assert (task.due_ms or 1_000_000) == min(dues)
        elif strategy == FIFO:
            assert task.queued_ms == min(each.queued_ms for each in self.waiting)
        self.waiting.remove(task)

    @rule(strategy=STRATEGIES)
    def switch(self, strategy: int) -> None:
        self.discipline.change(strategy)

    @invariant()
    def counts_agree(self) -> None:
        self.tasks.check_invariants()
        assert self.tasks.waiting == len(self.waiting)
        assert sum(self.tasks.bytes_waiting()) == sum(each.size for each in self.waiting)


TestAnyMixOfSteps = TasksMachine.TestCase
TestAnyMixOfSteps.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
