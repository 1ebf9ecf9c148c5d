from __future__ import annotations

from accord.core.admission.subscription_requests import (
    AT_A_TIME,
    PAUSE_US,
    ReevaluationQueue,
    Which,
)

SETTLE = 1_000
EVERYONE: list[Which] = [("ann", number) for number in range(AT_A_TIME + 5)]


def everyone() -> list[Which]:
    return EVERYONE


def test_nothing_is_looked_at_while_nothing_changes() -> None:
    looking = ReevaluationQueue[Which](SETTLE)
    assert looking.take(everyone, 0) == []
    assert looking.next_due_us() is None


def test_all_are_looked_at_a_while_after_a_change_some_at_a_time() -> None:
    looking = ReevaluationQueue[Which](SETTLE)
    looking.changed()
    assert looking.next_due_us() == SETTLE
    assert looking.take(everyone, 100) == []
    assert looking.next_due_us() == 100 + SETTLE
    assert looking.take(everyone, 100 + SETTLE) == EVERYONE[:AT_A_TIME]
    assert looking.next_due_us() == 100 + SETTLE + PAUSE_US
    assert looking.take(everyone, 100 + SETTLE + PAUSE_US) == EVERYONE[AT_A_TIME:]
    assert looking.next_due_us() is None


def test_what_changes_meanwhile_is_looked_at_again() -> None:
    looking = ReevaluationQueue[Which](SETTLE)
    looking.changed()
    looking.take(everyone, 0)
    looking.take(everyone, SETTLE)
    looking.changed()
    looking.take(everyone, SETTLE + PAUSE_US)
    assert looking.take(everyone, SETTLE + PAUSE_US) == []
    due_us = looking.next_due_us()
    assert due_us == SETTLE + PAUSE_US + SETTLE
    assert looking.take(everyone, due_us) == EVERYONE[:AT_A_TIME]
