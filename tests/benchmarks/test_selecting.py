"""Who has to get what is known beforehand, and every subscriber is held to it."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing

import pytest
from benchmarks.contenders import CONTENDERS, Broker
from benchmarks.filters import CHANNEL
from benchmarks.race import complete
from benchmarks.selecting import Selecting
from benchmarks.selections import Selection, per_chunk
from benchmarks.workloads import WORKLOADS
from tests.benchmarks.relay import relay

from accord.apps.load.frames import LoadError
from accord.core.model.values import infer
from benchmarks import load as load_module

COUNT = 200


def _broker(port: int) -> Broker:
    return Broker(CONTENDERS[0], os.getpid(), port)


@pytest.mark.parametrize(("met", "expected"), [("none", 0), ("one", 1)])
def test_events_meet_as_many_predicates_as_asked_for(met: str, expected: int) -> None:
    selection = Selection(1_000, "one" if met == "one" else "none")
    siena = next(each for each in WORKLOADS if each.name == "siena")
    predicates = [predicate for _, predicate in siena.predicates(1_000)]
    receivers = selection.receivers(COUNT)
    for properties, sessions in zip(selection.content.properties(COUNT), receivers, strict=True):
        attributes = {name: infer(text) for name, text in properties.items()}
        found = [key for key, each in enumerate(predicates) if each.evaluate(attributes)]
        assert len(found) == expected
        assert tuple(key % selection.sessions for key in found) == sessions


def test_a_tenth_meets_the_one_predicate() -> None:
    counts = Counter(map(len, Selection(1, "a tenth").receivers(10_000)))
    assert counts[1] == pytest.approx(1_000, rel=0.15)
    assert set(counts) == {0, 1}


def test_no_session_has_a_filter_twice() -> None:
    selection = Selection(1_000, "none", has_filters=True)
    assert selection.sessions == 10
    assert all(len(set(selection.subscriptions(each))) == 100 for each in range(10))
    shared = Selection(1_000, "none").subscriptions(9)
    assert b"$share/group-999/" + CHANNEL.encode() in shared[-1]


def test_chunks_know_their_receivers() -> None:
    assert per_chunk([(0,), (0, 1), (), (2,)], 2) == [Counter({0: 2, 1: 1}), Counter({2: 1})]


def test_all_that_is_expected_arrives() -> None:
    """The relay knows no predicates: right as long as they select everything."""
    with relay() as port, closing(Selecting(_broker(port), Selection(1, "all"))) as load:
        for count in (1, 5_000):
            burst = complete(load.run(count))
            assert burst.published == burst.delivered >= count
        load.settle()


@pytest.mark.parametrize("met", ["none", "a tenth"])
def test_more_than_is_expected_is_noticed(met: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "_STALL_S", 0.5)
    selection = Selection(1, "none" if met == "none" else "a tenth")
    with (
        relay() as port,
        closing(Selecting(_broker(port), selection)) as load,
        pytest.raises(LoadError, match="messages came that were for nobody"),
    ):
        complete(load.run(1))
