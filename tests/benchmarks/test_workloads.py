"""The workloads are what they say, the same in every run, and the index answers them rightly."""

from __future__ import annotations

import pytest
from benchmarks.cell import check_index
from benchmarks.draws import Draw
from benchmarks.measure import WrongAnswerError
from benchmarks.naive import Naive, aimed, check
from benchmarks.workloads import BLOCK, HEADERS, WORKLOADS, Workload

from accord.core.predicates.predicate import Predicate
from accord.predicates import Index

every_workload = pytest.mark.parametrize(
    "workload", [*WORKLOADS, HEADERS], ids=lambda each: f"{each.name}-{each.distribution}"
)


@every_workload
def test_a_seed_gives_the_same_predicates_and_events(workload: Workload) -> None:
    texts = [str(predicate) for _, predicate in workload.predicates(50, seed=7)]
    assert texts == [str(predicate) for _, predicate in workload.predicates(50, seed=7)]
    assert texts != [str(predicate) for _, predicate in workload.predicates(50, seed=8)]
    assert workload.events(20, seed=7) == workload.events(20, seed=7)
    assert workload.events(20, seed=7) != workload.events(20, seed=8)


def test_a_block_is_the_same_without_the_ones_before() -> None:
    workload = WORKLOADS[0]
    assert list(workload.predicates(2 * BLOCK))[BLOCK:] == workload.block(1)


@every_workload
def test_trees_are_canonical_already(workload: Workload) -> None:
    for _, predicate in workload.predicates(100):
        assert str(Predicate(predicate.tree)) == str(predicate)


@every_workload
def test_index_answers_as_naive_evaluation(workload: Workload) -> None:
    naive = Naive(workload.predicates(500))
    index = Index()
    for key, predicate in naive.predicates:
        index.add(key, predicate)
    check_index(index, workload, naive, workload.events(20))


@every_workload
def test_an_aimed_event_hits(workload: Workload) -> None:
    for event, (_, predicate) in zip(workload.events(30), workload.predicates(30), strict=True):
        assert predicate.matches(aimed(event, predicate))


def test_a_wrong_answer_is_noticed() -> None:
    naive, events = Naive(HEADERS.predicates(500)), HEADERS.events(5)
    with pytest.raises(WrongAnswerError, match="forgetful: differs from naive"):
        check("forgetful", lambda event: naive.match(event)[1:], naive, events)


def test_zipf_prefers_the_first() -> None:
    draw = Draw("any", "zipf")
    drawn = [draw.below(100) for _ in range(10_000)]
    # The first of 100 ranks has 1 part in 1 + 1/2 + … + 1/100 = 5.19.
    assert 0.17 < drawn.count(0) / len(drawn) < 0.21
    assert 0.08 < drawn.count(1) / len(drawn) < 0.11
    assert max(drawn) < 100
    assert len(set(draw.distinct(20, 10))) == 10
