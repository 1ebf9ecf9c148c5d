from __future__ import annotations

from accord.core.channels.streams.answering import Answering

MS = 1_000
S = 1_000_000


def test_how_long_answers_take_is_learnt_and_followed() -> None:
    answering = Answering()
    assert answering.took_us("a") == answering.pause_us("a") == 0
    answering.answered("a", 100 * MS, 140 * MS)
    assert answering.took_us("a") == 40 * MS
    assert answering.pause_us("a") == 60 * MS
    answering.answered("a", 0, S)
    assert 200 * MS < answering.took_us("a") < 300 * MS
    for _ in range(30):
        answering.answered("a", 0, 20 * MS)
    assert 20 * MS <= answering.took_us("a") < 21 * MS
    assert answering.took_us("b") == 0


def test_who_is_asked_waits_as_long_itself() -> None:
    answering = Answering()
    answering.told("a", 400 * MS)
    assert answering.took_us("a") == 0
    assert answering.pause_us("a") == 600 * MS
    answering.told("a", 20 * MS)
    assert answering.pause_us("a") == 30 * MS


def test_nonsense_makes_nobody_wait_for_long() -> None:
    answering = Answering()
    answering.told("a", 1 << 62)
    answering.answered("a", -(1 << 62), S)
    assert answering.took_us("a") == 3 * S
    assert answering.pause_us("a") == 4_500 * MS
    answering.told("a", -5)
    answering.answered("b", 1 << 62, S)
    assert answering.pause_us("b") == 0


def test_who_is_gone_is_forgotten() -> None:
    answering = Answering()
    for name in "ab":
        answering.told(name, S)
        answering.answered(name, 0, S)
    answering.forget(["b"])
    assert (answering.pause_us("a"), answering.took_us("b")) == (0, S)
    assert answering.took_us("a") == 0
