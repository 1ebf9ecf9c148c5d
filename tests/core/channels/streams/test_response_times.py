from __future__ import annotations

import pytest

from accord.core.channels.streams.stream_sender import ResponseTimes

MS = 1_000
S = 1_000_000


def test_how_long_answers_take_is_learnt_and_followed() -> None:
    answering = ResponseTimes()
    assert answering.estimate_us("a", 0) == answering.retransmit_us("a", 0) == 0
    answering.on_reply("a", 100 * MS, 140 * MS)
    assert answering.estimate_us("a", 140 * MS) == 40 * MS
    assert answering.retransmit_us("a", 140 * MS) == 60 * MS
    answering.on_reply("a", 0, S)
    assert 200 * MS < answering.estimate_us("a", S) < 300 * MS
    for _ in range(30):
        answering.on_reply("a", S - 20 * MS, S)
    assert answering.estimate_us("a", S) == pytest.approx(20 * MS, rel=0.01)
    assert answering.estimate_us("b", S) == 0


def test_what_was_learnt_fades() -> None:
    answering = ResponseTimes()
    answering.on_reply("a", 0, 2 * S)
    answering.on_report("b", 2 * S, 2 * S)
    assert answering.estimate_us("a", 7 * S) == S
    assert answering.retransmit_us("b", 7 * S) == 3 * S // 2
    assert answering.retransmit_us("a", 60 * S) < MS
    assert answering.retransmit_us("b", 60 * S) < MS


def test_who_is_asked_waits_as_long_itself() -> None:
    answering = ResponseTimes()
    answering.on_report("a", 400 * MS, S)
    assert answering.estimate_us("a", S) == 0
    assert answering.retransmit_us("a", S) == 600 * MS
    answering.on_report("a", 20 * MS, S)
    assert answering.retransmit_us("a", S) == 30 * MS


def test_nonsense_makes_nobody_wait_for_long() -> None:
    answering = ResponseTimes()
    answering.on_report("a", 1 << 62, S)
    answering.on_reply("a", -(1 << 62), S)
    assert answering.estimate_us("a", S) == 3 * S
    assert answering.retransmit_us("a", S) == 4_500 * MS
    answering.on_report("b", -5, S)
    answering.on_reply("b", 1 << 62, S)
    assert answering.retransmit_us("b", S) == 0


def test_who_is_gone_is_forgotten() -> None:
    answering = ResponseTimes()
    for name in "ab":
        answering.on_report(name, S, S)
        answering.on_reply(name, 0, S)
    answering.prune(["b"])
    assert (answering.retransmit_us("a", S), answering.estimate_us("a", S)) == (0, 0)
    assert answering.estimate_us("b", S) == S
