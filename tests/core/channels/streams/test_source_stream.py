from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.channel_nets import event

from accord.core.channels.streams.messages import NOTHING, StreamHeader, StreamId
from accord.core.channels.streams.source_stream import (
    MAX_BYTES,
    WINDOW,
    BufferedEvent,
    HeartbeatBackoff,
    SourceStream,
)
from accord.core.model.units import NEVER_US

KEY = StreamId("a", 1, 1)
NOTE = StreamHeader(NOTHING)


def kept(number: int) -> BufferedEvent:
    return BufferedEvent(event(str(number)), StreamHeader(NOTHING), 0)


def numbers(found: list[BufferedEvent]) -> list[int]:
    return [int(each.event.payload) for each in found]


def test_events_are_ready_in_their_order() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    assert stream.put(2, kept(2))
    assert stream.ready() == []
    assert stream.missing() == ((1, 1),)
    assert stream.put(1, kept(1))
    assert numbers(stream.ready()) == [1, 2]
    assert not stream.put(2, kept(2))
    assert not stream.is_incomplete()


def test_no_more_is_kept_than_a_source_has_on_its_way() -> None:
    def large(megabytes: int) -> BufferedEvent:
        return BufferedEvent(
            msgspec.structs.replace(event(""), payload=bytes(megabytes << 20)), NOTE, 0
        )

    stream = SourceStream("chat", KEY, 1, 0)
    assert stream.put(3, large(40)), "one is always kept"
    assert not stream.put(2, large(1))
    stream.update_window(4, 4)
    stream.ready()
    stream.check_invariants()
    assert [stream.put(number, large(10)) for number in (5, 6, 7, 8)] == [True, True, True, False]
    stream.check_invariants()
    assert stream.bytes <= MAX_BYTES
    assert stream.put(4, kept(4))
    assert len(stream.ready()) == 4
    stream.update_window(6, 9)
    stream.ready()
    assert stream.put(8, large(10)), "it is sent again, and there is room now"
    stream.ready()
    stream.check_invariants()


def test_the_end_may_be_missing_too() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    stream.put(2, kept(2))
    stream.update_window(1, 5)
    assert stream.missing() == ((1, 1), (3, 5))
    stream.schedule_nack(0)
    assert 0 < stream.nack_us < NEVER_US


def test_who_was_given_up_goes_on_from_the_base_and_knows() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    stream.put(1, kept(1))
    stream.ready()
    stream.put(3, kept(3))
    stream.update_window(6, 7)
    assert numbers(stream.ready()) == [3]
    assert stream.skipped == 3  # 2, 4 and 5
    assert stream.received_through == 5
    assert stream.events == {}
    stream.put(6, kept(6))
    assert numbers(stream.ready()) == [6]
    stream.check_invariants()


def test_what_everybody_has_is_forgotten_and_the_rest_kept_for_others() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    for number in (3, 1, 2):
        stream.put(number, kept(number))
    stream.ready()
    assert sorted(stream.events) == [1, 2, 3]
    stream.update_window(3, 3)
    stream.ready()
    assert sorted(stream.events) == [3]


def test_no_more_is_kept_than_a_window() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    assert not stream.put(WINDOW + 1, kept(WINDOW + 1))
    stream.update_window(1, 1 << 40)
    assert stream.last_sent == WINDOW
    assert len(stream.missing()) == 1


def test_what_is_held_back_is_not_acknowledged() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    for number in (1, 2, 3):
        stream.put(number, kept(number))
    stream.ready()
    assert stream.acked_through == 3
    stamps = [(1, "q", 1, place) for place in (7, 9)]
    stream.undelivered |= {stamps[0]: 2, stamps[1]: 3}
    assert stream.acked_through == 1
    stream.check_invariants()
    del stream.undelivered[stamps[0]]
    assert stream.acked_through == 2
    del stream.undelivered[stamps[1]]
    assert stream.acked_through == 3


def test_reports_only_grow() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    stream.update_window(1, 3)
    assert stream.merge_acks({"b": 3, "c": 1}, "bc")
    assert not stream.merge_acks({"b": 2, "c": 1}, "bc")
    assert stream.reports == {"b": 3, "c": 1}


def test_reports_of_others_and_of_more_than_there_is_do_not_count() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    stream.update_window(1, 3)
    assert stream.merge_acks({"b": 1 << 40, "elsewhere": 2}, "bc")
    assert stream.reports == {"b": 3}


def test_a_jump_ahead_costs_nothing() -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    stream.update_window(1, 5)
    stream.put(2, kept(2))
    stream.put(5, kept(5))
    stream.update_window(1 << 40, 1 << 40)
    assert numbers(stream.ready()) == [2, 5]
    assert stream.skipped == (1 << 40) - 1 - 2
    assert stream.received_through == (1 << 40) - 1
    stream.check_invariants()


def test_who_is_silent_hears_less_often() -> None:
    pace = HeartbeatBackoff(0, 100)
    pace.back_off(0)
    assert (pace.due_us, pace.interval_us) == (100, 150)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), max_size=60))
def test_whatever_comes_each_is_ready_once_and_in_order(steps: list[tuple[int, int]]) -> None:
    stream = SourceStream("chat", KEY, 1, 0)
    found: list[int] = []
    base = 1
    for number, other in steps:
        base = max(base, other) if number % 7 == 0 else base
        stream.update_window(base, max(number, stream.last_sent))
        stream.put(number, kept(number))
        found += numbers(stream.ready())
        stream.check_invariants()
    assert found == sorted(set(found))
    assert stream.skipped + len(found) == stream.received_through
