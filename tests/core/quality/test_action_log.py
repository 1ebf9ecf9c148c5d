"""What came of advice and acts: observed while they are open, bounded."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as some

from accord.core.quality.action_log import (
    ENDED,
    MISSED,
    REACHED,
    SETTLE_MS,
    SUPERSEDED,
    WAITING,
    ActionLog,
    QualityAction,
)
from accord.core.quality.properties import Value

TIMEOUT_MS = 5_000


def add(log: ActionLog, at_ms: int = 0, publisher: str = "P", target: float = 10) -> None:
    log.add(
        at_ms=at_ms,
        act="advise the publisher",
        publisher=publisher,
        channel="c",
        property_="rate",
        target=target,
        before=2.0,
    )


def at(value: float) -> Callable[[QualityAction], tuple[Value, bool]]:
    return lambda action: (value, value >= float(action.target))


def outcomes(log: ActionLog) -> list[str]:
    return [each.outcome for each in log]


def test_what_is_reached_is_observed_for_a_while_longer() -> None:
    log = ActionLog(TIMEOUT_MS)
    add(log)
    (entry,) = log
    assert (entry.outcome, entry.before, entry.after) == (WAITING, 2.0, None)
    assert log.observe(at(4), 1_000)
    assert (entry.outcome, entry.after) == (WAITING, 4)
    assert log.observe(at(10), 2_000)
    assert (entry.outcome, entry.after, entry.reached_ms) == (REACHED, 10, 2_000)
    assert log.observe(at(9.5), 3_000)  # what was measured afterwards
    assert (entry.outcome, entry.after, entry.after_ms) == (REACHED, 9.5, 3_000)
    log.observe(at(9.5), 2_000 + SETTLE_MS)
    assert not log.observe(at(1), 3_000 + SETTLE_MS)
    assert entry.after == 9.5


def test_what_is_not_reached_in_time_is_missed_unless_it_is_reached_late() -> None:
    log = ActionLog(TIMEOUT_MS)
    add(log)
    add(log, publisher="Q")
    log.observe(at(3), TIMEOUT_MS)
    assert outcomes(log) == [WAITING, WAITING]
    log.observe(at(3), TIMEOUT_MS + 1)
    assert outcomes(log) == [MISSED, MISSED]
    log.observe(lambda each: at(12 if each.publisher == "Q" else 3)(each), TIMEOUT_MS + 500)
    assert outcomes(log) == [REACHED, MISSED]


def test_newer_advice_supersedes_what_is_open_and_leaves_what_is_done() -> None:
    log = ActionLog(TIMEOUT_MS)
    add(log)
    add(log, 100, target=20)
    assert outcomes(log) == [WAITING, SUPERSEDED]
    log.observe(at(20), 200)
    add(log, 300, target=30)
    assert outcomes(log) == [WAITING, REACHED, SUPERSEDED]
    assert [each.number for each in log] == [3, 2, 1]


def test_the_end_of_a_profile_ends_what_waits() -> None:
    log = ActionLog(TIMEOUT_MS)
    add(log)
    add(log, publisher="Q")
    log.observe(lambda each: at(10)(each) if each.publisher == "Q" else None, 100)
    log.observe(lambda _: None, 200)
    assert outcomes(log) == [REACHED, ENDED]
    assert not log.observe(at(10), 300)


@given(some.lists(some.tuples(some.integers(0, 9), some.integers(0, 20)), max_size=60))
def test_it_is_bounded(steps: list[tuple[int, int]]) -> None:
    log = ActionLog(TIMEOUT_MS, most=5)
    for number, (publisher, value) in enumerate(steps):
        add(log, number * 700, str(publisher))
        log.observe(at(value), number * 700)
        assert len(log) <= 5
    assert [each.number for each in log] == sorted((e.number for e in log), reverse=True)
