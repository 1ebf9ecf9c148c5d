from __future__ import annotations

import msgspec
from tests.core.links.conversing import Ends, Load, Note, S, Source, encode, linked, load, why

from accord.core.links.codec import CONTROL, DATA, LAST, PART, frame, frame_of
from accord.core.links.errors import CloseReason
from accord.core.links.messages import Hello, Proof, encode_link_message
from accord.core.links.options import LinkOptions


def test_messages_of_control_travel_together_in_their_order() -> None:
    ends = linked()
    for number in range(100):
        ends.dialer.send(Note(number))
    ends.talk()
    assert ends.to_listener == [Note(number) for number in range(100)]
    sent, received = ends.dialer.traffic.sent.control, ends.listener.traffic.received.control
    assert sent == received
    assert (sent.frames, sent.messages) == (1, 100)


def test_frames_of_control_are_no_larger_than_needed() -> None:
    ends = linked()
    notes = [Note(1), Note(2, "x" * 60_000), Note(3, "x" * 200_000), Note(4), Note(5)]
    for note in notes:
        ends.dialer.send(note)
    frames = ends.dialer.take_control(0)
    assert [len(each) // 1000 for each in frames] == [60, 200, 0]
    assert ends.listener.receive(b"".join(frames), 0) == notes


def test_data_is_pulled_as_far_as_there_is_room() -> None:
    ends = linked()
    source = Source(*(load(at, 1_000) for at in range(100)))
    ends.send_data(source, room=10_000)
    assert [message.number for message in ends.to_listener] == list(range(10))
    assert source.asked[0] == 10_000
    ends.send_data(source, room=0)
    assert len(source.messages) == 90
    ends.send_data(source)
    assert [message.number for message in ends.to_listener] == list(range(100))
    assert max(source.asked) == 64 << 10
    data = ends.dialer.traffic.sent.data
    assert data == ends.listener.traffic.received.data
    assert data.messages == 100
    assert data.frames < 10


def test_control_never_waits_behind_more_than_a_piece() -> None:
    ends = linked()
    source = Source(load(1, 1_000_000), load(2, 10))
    written = 0
    while True:
        frames = ends.send_data(source, room=1)
        if not frames:
            break
        assert len(b"".join(frames)) <= 64 << 10
        ends.dialer.send(Note(written))
        ends.talk()
        written += 1
    notes = [each for each in ends.to_listener if isinstance(each, Note)]
    loads = [each for each in ends.to_listener if isinstance(each, Load)]
    assert notes == [Note(number) for number in range(written)]
    assert loads == [Load(1, b"\1" * 1_000_000), Load(2, b"\2" * 10)]
    assert written > 15


def test_pieces_are_as_large_as_there_is_room() -> None:
    ends = linked()
    source = Source(load(1, 300_000))
    for room, size in ((20_000, 20_005), (10, 1_405), (1 << 20, 65_541)):
        frames = ends.send_data(source, room=room)
        assert len(frames[0]) == size
    assert ends.to_listener == [Load(1, b"\1" * 300_000)]


def test_what_the_other_side_would_not_accept_is_not_sent_and_counted() -> None:
    ends = linked(LinkOptions(message_bytes=8_192))
    ends.dialer.send(Note(1, "x" * 8_192))
    ends.talk()
    ends.send_data(Source(load(1, 8_192), load(2, 8_000), load(3)))
    assert [message.number for message in ends.to_listener] == [2, 3]
    assert ends.dialer.traffic.too_large == 2
    assert ends.dialer.ended is ends.listener.ended is None


def test_nothing_is_sent_before_the_handshake_has_ended() -> None:
    ends = Ends()
    source = Source(load(1))
    ends.dialer.send(Note(1))
    assert ends.dialer.take_data(1_000, source.pull, 0) == []
    ends.talk()
    assert ends.to_listener == []
    assert len(source.messages) == 1


def test_what_comes_with_the_last_of_the_handshake_counts() -> None:
    ends = Ends()
    for _ in range(3):
        there = b"".join(ends.dialer.take_control(0))
        ends.listener.receive(there, 0)
        if ends.listener.neighbour is None:
            ends.dialer.receive(b"".join(ends.listener.take_control(0)), 0)
    ends.listener.send(Note(7))
    data = b"".join(ends.listener.take_control(0))
    assert ends.dialer.receive(data, 0) == [Note(7)]


def test_control_that_nobody_takes_ends_the_link() -> None:
    ends = linked(LinkOptions(control_bytes=10_000))
    for number in range(200):
        ends.dialer.send(Note(number, "x" * 100))
        assert ends.dialer.buffered_bytes <= 10_000
    assert why(ends.dialer) == CloseReason.BEHIND
    ends.talk()
    assert ends.to_listener == []
    assert ends.listener.ended is not None
    assert ends.listener.ended.is_from_peer


def test_garbage_ends_the_link_after_what_came_before() -> None:
    ends = linked()
    data = frame_of(CONTROL, [encode(Note(1))]) + frame(CONTROL, b"\xc1")
    assert ends.listener.receive(data + frame_of(CONTROL, [encode(Note(2))]), 0) == [Note(1)]
    assert why(ends.listener) == CloseReason.GARBAGE
    ends.talk()
    assert ends.dialer.ended is not None
    assert str(ends.dialer.ended).startswith("reported by the peer: a message that can't be read")


def test_what_must_not_come_after_the_handshake() -> None:
    wrong = {
        "a second handshake": frame(0, encode_link_message(Proof(bytes(32)))),
        "a message between the fragments of another": frame(PART, b"x") + frame_of(DATA, [load(1)]),
        "a message that can't be read": frame(PART, b"\xc1") + frame(LAST, b""),
    }
    for problem, data in wrong.items():
        ends = linked()
        ends.listener.receive(data, 0)
        assert ends.listener.ended is not None
        assert problem in ends.listener.ended.problem
        assert ends.listener.buffered_bytes == 0


def test_pieces_add_up_to_no_more_than_a_message_may_have() -> None:
    ends = linked(LinkOptions(message_bytes=10_000))
    for _ in range(10):
        ends.listener.receive(frame(PART, bytes(1_000)), 0)
        assert why(ends.listener) == ""
        ends.listener.check_invariants()
    ends.listener.receive(frame(PART, bytes(1)), 0)
    assert why(ends.listener) == CloseReason.TOO_LARGE


def test_a_frame_has_few_messages_where_it_is_large() -> None:
    """One that is full of small ones would take long to go through."""
    ends = linked()
    large = encode(Note(1, "x" * 2_000_000))
    ends.listener.receive(frame_of(CONTROL, [large]), 0)
    assert not why(ends.listener)
    small = encode(Note(2, "x" * 1_000))
    ends.listener.receive(frame_of(CONTROL, [small] * 1_000), 0)
    assert not why(ends.listener)
    ends.listener.receive(frame_of(DATA, [small] * 2_000), 0)
    assert why(ends.listener) == CloseReason.TOO_LARGE


def test_a_handshake_that_takes_too_long() -> None:
    ends = Ends()
    assert ends.listener.next_due_us() == 5 * S
    ends.listener.advance(5 * S - 1)
    assert why(ends.listener) == ""
    ends.listener.receive(b"\0", 4 * S)  # a byte now and then does not help
    ends.listener.advance(5 * S)
    assert why(ends.listener) == CloseReason.SLOW
    assert ends.listener.next_due_us() is None


def test_an_idle_link_is_kept_alive_and_a_silent_one_ends() -> None:
    ends = linked()
    for _ in range(20):
        due_us = ends.dialer.next_due_us()
        assert due_us is not None
        ends.now_us = due_us
        ends.dialer.advance(due_us)
        ends.listener.advance(due_us)
        ends.talk()
    assert ends.now_us == 100 * S
    assert ends.to_listener == ends.to_dialer == []
    assert ends.listener.traffic.received.link.frames == 22
    ends.listener.advance(ends.now_us + 15 * S - 1)
    assert why(ends.listener) == ""
    ends.listener.advance(ends.now_us + 15 * S)
    assert ends.listener.ended is not None
    assert (ends.listener.ended.reason, ends.listener.ended.problem) == (
        CloseReason.IDLE,
        "nothing received for 15 s",
    )


def test_whoever_sends_needs_no_keepalive() -> None:
    ends = linked()
    ends.now_us = 4 * S
    ends.dialer.send(Note(1))
    ends.talk()
    assert ends.dialer.next_due_us() == 9 * S


def test_a_side_that_speaks_seldom_is_given_the_time_it_says() -> None:
    slow = Ends(options=LinkOptions(keepalive_us=20 * S))
    fast = Ends(options=LinkOptions(keepalive_us=1 * S))
    slow.listener = fast.listener
    slow.talk()
    slow.listener.advance(59 * S)
    assert why(slow.listener) == ""
    slow.listener.advance(60 * S)
    assert slow.listener.ended is not None


def test_either_side_may_end_it_with_a_word() -> None:
    ends = linked()
    ends.dialer.send(Note(1))
    ends.dialer.end(CloseReason.STOPPED, "node athens stops")
    ends.dialer.end(CloseReason.GARBAGE, "too late")
    ends.talk()
    for side in (ends.dialer, ends.listener):
        assert side.ended is not None
        assert (side.ended.reason, side.ended.is_routine) == (CloseReason.STOPPED, True)
        assert side.ended.problem == "node athens stops"
    assert ends.to_listener == []
    assert ends.listener.receive(frame_of(CONTROL, [encode(Note(2))]), 0) == []


def test_reasons_of_newer_nodes_are_understood_as_text() -> None:
    ends = linked()
    ends.dialer.receive(frame(0, msgspec.msgpack.encode(["ended", "new", "x" * 1_000, 7])), 0)
    assert ends.dialer.ended is not None
    assert ends.dialer.ended.reason == "new"
    assert len(ends.dialer.ended.problem) == 300
    assert ends.dialer.ended.remedy == ""


def test_touching_shows_the_other_side_that_one_is_there() -> None:
    ends = linked()
    ends.dialer.queue_keepalive()
    ends.dialer.queue_keepalive()
    assert ends.dialer.take_control(0) == [frame(0, b"")]


def test_a_second_greeting_is_no_greeting() -> None:
    ends = linked()
    again = Hello("accord link", 1, 1, "athens", 1, b"n" * 32, True, {})
    ends.listener.receive(frame(0, encode_link_message(again)), 0)
    assert ends.listener.ended is not None
    assert ends.listener.ended.problem == "a second handshake"
