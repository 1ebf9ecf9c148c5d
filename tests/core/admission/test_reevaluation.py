from __future__ import annotations

from accord.core.admission.subscription_requests import (
    MAX_BATCH,
    PAUSE_US,
    ReevaluationQueue,
    Which,
)

SETTLE = 1_000
EVERYONE: list[Which] = [("ann", number) for number in range(MAX_BATCH + 5)]


def everyone() -> list[Which]:
    return EVERYONE


def test_nothing_is_looked_at_while_nothing_changes() -> None:
    looking = ReevaluationQueue[Which](SETTLE)
    assert looking.take(everyone, 0) == []
    assert looking.next_due_us() is None


def test_all_are_looked_at_a_while_after_a_change_some_at_a_time() -> None:
    looking = ReevaluationQueue[Which](SETTLE)
    looking.schedule()
    assert looking.next_due_us() == SETTLE
    assert looking.take(everyone, 100) == []
    assert looking.next_due_us() == 100 + SETTLE
    assert looking.take(everyone, 100 + SETTLE) == EVERYONE[:MAX_BATCH]
    assert looking.next_due_us() == 100 + SETTLE + PAUSE_US
    assert looking.take(everyone, 100 + SETTLE + PAUSE_US) == EVERYONE[MAX_BATCH:]
    assert looking.next_due_us() is None


def test_what_changes_meanwhile_is_looked_at_again() -> None:
    looking = ReevaluationQueue[Which](SETTLE)
    looking.schedule()
    looking.take(everyone, 0)
    looking.take(everyone, SETTLE)
    looking.schedule()
    looking.take(everyone, SETTLE + PAUSE_US)
    assert looking.take(everyone, SETTLE + PAUSE_US) == []
    due_us = looking.next_due_us()
    assert due_us == SETTLE + PAUSE_US + SETTLE
    assert looking.take(everyone, due_us) == EVERYONE[:MAX_BATCH]
