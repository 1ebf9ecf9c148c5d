"""How far the journals of others are known to be here."""

from __future__ import annotations

from accord.core.channels.history.messages import CutReply
from accord.core.channels.history.peer_watermarks import (
    MARK_US,
    MAX_SEEN,
    RETRY_US,
    SETTLED_US,
    PeerWatermarks,
)


def mark(peer: PeerWatermarks, now_us: int, offset: int, number: int) -> None:
    round_ = peer.question(now_us, 0)
    assert round_
    assert peer.answered(CutReply(round_, 1, offset, number, (1, 1)), now_us)
    peer.check_invariants()


def test_what_came_before_an_old_mark_is_safe() -> None:
    peer = PeerWatermarks("a")
    assert peer.look(True, 1, 0)
    for number in range(1, 11):
        peer.arrived(number)
    mark(peer, 0, 100, 5)
    assert (peer.safe_offset, len(peer.seen)) == (0, 10)
    now_us = 0
    while now_us < SETTLED_US:
        now_us += MARK_US
        assert peer.next_due_us() == now_us
        mark(peer, now_us, 200, 10)
    assert peer.safe_offset == 100
    assert list(peer.seen) == [6, 7, 8, 9, 10]


def test_marks_do_not_count_where_the_node_was_away_since() -> None:
    peer = PeerWatermarks("a")
    peer.look(True, 1, 0)
    mark(peer, 0, 100, 5)
    assert not peer.look(False, 1, 10)
    assert peer.question(10, 0) == 0
    assert peer.look(True, 1, 20)
    mark(peer, SETTLED_US + 20, 200, 10)
    assert peer.safe_offset == 0


def test_another_incarnation_may_have_lost_something() -> None:
    peer = PeerWatermarks("a")
    assert not peer.look(True, 0, 0)  # nothing is known of it yet
    assert peer.look(True, 7, 0)
    assert not peer.look(True, 7, 1)
    assert not peer.has_begun_anew(7, 2)
    assert peer.has_begun_anew(8, 2)
    assert not peer.look(True, 7, 3)  # older facts
    assert not peer.look(True, 8, 3)
    assert peer.look(True, 9, 3)


def test_a_question_is_repeated_and_its_answer_counts_once() -> None:
    peer = PeerWatermarks("a")
    peer.look(True, 1, 0)
    round_ = peer.question(0, 41)
    assert round_ == 42
    assert peer.question(1, 42) == 0
    assert peer.question(RETRY_US, 42) == 42
    assert not peer.answered(CutReply(41, 1, 0, 0, (1, 1)), RETRY_US)
    assert peer.answered(CutReply(42, 1, 0, 0, (1, 1)), RETRY_US)
    assert not peer.answered(CutReply(42, 1, 0, 0, (1, 1)), RETRY_US)


def test_numbers_are_bounded_and_what_is_forgotten_is_counted() -> None:
    peer = PeerWatermarks("a")
    for number in range(MAX_SEEN + 3):
        peer.arrived(number)
    assert (len(peer.seen), peer.forgotten, 2 in peer.seen) == (MAX_SEEN, 3, False)
