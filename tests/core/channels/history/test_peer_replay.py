"""One node's part of the past: legs, pages, and what came live meanwhile."""

from __future__ import annotations

from accord.core.channels.history.messages import CutReply, HistoryEvent, HistoryPage
from accord.core.channels.history.peer_replay import (
    ASKING,
    AWAY_US,
    KNOWN_US,
    LIVE,
    PATIENCE_US,
    READ,
    READING,
    PeerReplay,
)
from accord.core.channels.history.peer_watermarks import PeerWatermarks

NEEDED = (1, 5)


def event(number: int) -> HistoryEvent:
    return HistoryEvent(number, number, "chat", "bob", 1, b"", b"x")


def answer(
    peer: PeerWatermarks, now_us: int, offset: int, number: int, heard: tuple[int, int]
) -> None:
    """The peer is asked for a cut, and makes it, at once."""
    peer.is_mark_wanted = True
    round_ = peer.question(now_us, now_us)
    assert round_
    assert peer.answered(CutReply(round_, 1, offset, number, heard), now_us)


def make() -> tuple[PeerReplay, PeerWatermarks]:
    peer = PeerWatermarks("a")
    assert peer.look(True, 1, 0)
    return PeerReplay("a", (0, 0, ""), now_us=0), peer


def test_the_first_leg_is_never_the_last_unless_the_node_has_known_for_a_while() -> None:
    source, peer = make()
    source.look_for_cut(peer, NEEDED, 0)
    assert peer.is_mark_wanted
    answer(peer, 0, 3, 3, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 10)
    assert (source.phase, source.before, source.is_whole) == (READING, 3, False)
    assert source.wants_page(10)
    source.page_asked(1, 10)
    source.take_page(HistoryPage(1, (event(1), event(2), event(3))), 20)
    assert [source.take(20)[0].number for _ in range(3)] == [1, 2, 3]
    assert (source.phase, source.start, source.due_us) == (ASKING, 3, 10 + KNOWN_US)
    answer(peer, 10 + KNOWN_US, 5, 5, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 10 + KNOWN_US)
    assert (source.phase, source.is_whole) == (READING, True)
    source.page_asked(2, 10 + KNOWN_US)
    source.take_page(HistoryPage(2, ()), 20 + KNOWN_US)
    assert source.phase == READ
    assert source.is_past(5)
    assert not source.is_past(6)


def test_a_cut_that_was_asked_for_too_early_does_not_count() -> None:
    source, peer = make()
    answer(peer, 0, 3, 3, heard=(1, 5))
    source.wanted_us = 1
    source.look_for_cut(peer, NEEDED, 10)
    assert source.phase == ASKING
    assert source.next_due_us(peer) == PATIENCE_US


def test_as_long_as_the_need_is_not_known_leg_follows_leg() -> None:
    source, peer = make()
    now_us = 0
    for _ in range(3):
        answer(peer, now_us, 0, 0, heard=(1, 4))
        source.look_for_cut(peer, NEEDED, now_us)
        assert (source.phase, source.is_whole) == (ASKING, False)
        now_us = source.due_us
    answer(peer, now_us, 0, 0, heard=(1, 6))
    source.look_for_cut(peer, NEEDED, now_us)
    assert source.is_whole


def test_a_node_that_began_anew_has_to_hear_of_the_need_again() -> None:
    source, peer = make()
    answer(peer, 0, 0, 0, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 0)
    assert source.is_whole
    source.lose(1, 0, {})
    assert (source.is_whole, source.known_us) == (False, -1)


def test_a_live_one_that_lost_something_reads_on_and_skips_what_it_had() -> None:
    source, peer = make()
    source.phase, source.start, source.is_whole = LIVE, 10, True
    source.lose(100, 20, {21: True})
    assert (source.phase, source.start) == (ASKING, 20)
    answer(peer, source.due_us, 23, 23, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, source.due_us)
    source.page_asked(1, source.due_us)
    source.take_page(HistoryPage(1, (event(21), event(22), event(23))), 500_000)
    assert [source.take(500_000)[0].number for _ in range(2)] == [22, 23]


def test_where_to_go_on_is_before_what_was_not_handed_over() -> None:
    source, peer = make()
    answer(peer, 0, 9, 9, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 0)
    source.page_asked(1, 0)
    source.take_page(HistoryPage(1, (event(1), event(2)), "2"), 1)
    assert source.position() == (0, 9, "")
    assert source.take(1) == (event(1), None)
    assert source.take(1) == (event(2), (0, 9, "2"))
    assert source.position() == (0, 9, "2")
    again = PeerReplay("a", (0, 9, "2"), now_us=0)
    assert (again.phase, again.is_whole) == (READING, False)


def test_a_journal_that_is_another_one_is_read_from_its_beginning() -> None:
    _, peer = make()
    source = PeerReplay("a", (50, 50, ""), now_us=0)
    answer(peer, 0, 4, 4, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 0)
    assert (source.start, source.before) == (0, 4)


def test_patience_is_for_those_that_were_asked() -> None:
    source, peer = make()
    assert not source.is_silent(True, PATIENCE_US - 1)
    assert source.is_silent(True, PATIENCE_US)
    assert source.is_silent(False, AWAY_US)
    answer(peer, 0, 9, 9, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 0)
    source.no_room(10)
    assert not source.is_silent(True, 10 * PATIENCE_US)  # its client is slow, not the node
    source.page_asked(1, 10)
    source.put_off("busy", 20)
    assert source.is_silent(True, 10 + PATIENCE_US)


def test_what_is_passed_by_is_not_read_again() -> None:
    source, peer = make()
    source.miss()
    assert source.pass_by(7)
    answer(peer, 0, 9, 9, heard=(1, 5))
    source.look_for_cut(peer, NEEDED, 0)
    assert not source.is_missing
    source.page_asked(1, 0)
    source.take_page(HistoryPage(1, (event(7), event(8))), 1)
    assert source.take(1)[0].number == 8
