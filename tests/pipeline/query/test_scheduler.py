from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from accord.core.queries.messages import FromPipeline, Page, QueryFailure
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.scheduler import CANCELLED, QueryJob, QueryScheduler

Answers = queue.Queue[FromPipeline]


@pytest.fixture
def answers() -> Answers:
    return queue.Queue()


@pytest.fixture
def make(answers: Answers) -> Iterator[Callable[..., QueryScheduler]]:
    made: list[QueryScheduler] = []

    def make(**options: float) -> QueryScheduler:
        made.append(QueryScheduler(answers.put, lambda _tag: None, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for turns in made:
        turns.stop(5.0)


def page(job: QueryJob) -> FromPipeline:
    return Page(id=job.id, events=())


def test_important_ones_come_first(answers: Answers, make: Callable[..., QueryScheduler]) -> None:
    turns = make(workers=1)
    for id_, importance in ((1, 0), (2, 7), (3, 0), (4, 7)):
        turns.put(QueryJob(id_, importance, page))
    assert turns.waiting == 4
    turns.start()
    found = [answers.get(timeout=10) for _ in range(4)]
    order = [each.id for each in found if isinstance(each, Page)]
    assert order.index(2) < order.index(1)
    assert order.index(2) < order.index(4)
    assert order.index(1) < order.index(3)
    assert turns.completed == 4


def test_what_there_is_no_room_for_is_told(
    answers: Answers, make: Callable[..., QueryScheduler]
) -> None:
    turns = make(waiting=2)
    for id_, importance in ((1, 3), (2, 3), (3, 5)):
        turns.put(QueryJob(id_, importance, page))
    shed = answers.get(timeout=10)
    assert isinstance(shed, QueryFailure)
    assert (shed.id, shed.problem) == (1, "too many queries wait")


def test_mistakes_are_answers(answers: Answers, make: Callable[..., QueryScheduler]) -> None:
    turns = make()
    turns.start()

    def ask_badly(_job: QueryJob) -> FromPipeline:
        raise InvalidQueryError("expected a cursor", place="cursor")

    def break_down(_job: QueryJob) -> FromPipeline:
        raise ZeroDivisionError("oh")

    turns.put(QueryJob(1, 3, ask_badly))
    assert answers.get(timeout=10) == QueryFailure(
        id=1, problem="expected a cursor", place="cursor", kind="question"
    )
    turns.put(QueryJob(2, 3, break_down))
    failed = answers.get(timeout=10)
    assert isinstance(failed, QueryFailure)
    assert "oh" in failed.problem


class _Patient:
    """Works until it is interrupted, as Spark does."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.interrupted = threading.Event()

    def work(self, job: QueryJob) -> FromPipeline:
        self.began.set()
        assert self.interrupted.wait(10)
        job.check()
        return page(job)


def test_a_running_one_can_be_cancelled(answers: Answers) -> None:
    patient = _Patient()
    turns = QueryScheduler(answers.put, lambda _tag: patient.interrupted.set())
    turns.start()
    turns.put(QueryJob(1, 3, patient.work))
    assert patient.began.wait(10)
    assert turns.running == 1
    turns.cancel(1)
    turns.cancel(2)  # nobody has asked that
    assert answers.get(timeout=10) == QueryFailure(id=1, problem=CANCELLED, kind="busy")
    turns.stop(5.0)


def test_a_waiting_one_can_be_cancelled(
    answers: Answers, make: Callable[..., QueryScheduler]
) -> None:
    turns = make()
    turns.put(QueryJob(1, 3, page))
    turns.cancel(1)
    turns.start()
    assert answers.get(timeout=10) == QueryFailure(id=1, problem=CANCELLED, kind="busy")


def test_one_that_takes_too_long_ends(answers: Answers) -> None:
    patient = _Patient()
    turns = QueryScheduler(answers.put, lambda _tag: patient.interrupted.set(), limit_s=0.0)
    turns.start()
    turns.put(QueryJob(1, 3, patient.work))
    assert patient.began.wait(10)
    turns.expire()
    failed = answers.get(timeout=10)
    assert isinstance(failed, QueryFailure)
    assert "longer than 0 s" in failed.problem
    turns.stop(5.0)


def test_an_id_is_used_once_at_a_time(
    answers: Answers, make: Callable[..., QueryScheduler]
) -> None:
    turns = make()
    turns.put(QueryJob(1, 3, page))
    turns.put(QueryJob(1, 3, page))
    failed = answers.get(timeout=10)
    assert isinstance(failed, QueryFailure)
    assert failed.place == "id"


def test_stopping_answers_what_runs(answers: Answers) -> None:
    patient = _Patient()
    turns = QueryScheduler(answers.put, lambda _tag: patient.interrupted.set(), workers=1)
    turns.start()
    turns.put(QueryJob(1, 3, patient.work))
    assert patient.began.wait(10)
    turns.stop(5.0)
    assert answers.get(timeout=10) == QueryFailure(id=1, problem="the pipeline stops", kind="busy")
