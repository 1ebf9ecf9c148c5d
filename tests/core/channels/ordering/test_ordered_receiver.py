from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.channel_nets import event

from accord.core.channels.ordering.messages import (
    MAX_INDEX,
    MAX_SHOWN,
    Epoch,
    HolderQuery,
    HolderReply,
    OrderPosition,
    PositionRange,
    PositionVoid,
    position_at,
)
from accord.core.channels.ordering.ordered_receiver import FIRST_QUERY_US, QUERY_US, OrderedReceiver
from accord.core.channels.streams.messages import NOTHING, StreamHeader
from accord.core.channels.streams.source_stream import BufferedEvent

EPOCH = (1, "q", 1)
NEXT = (2, "r", 1)
PATIENCE_US = 30_000_000


def put(member: OrderedReceiver, place: int, epoch: Epoch = EPOCH, now_us: int = 0) -> list[str]:
    stamp = position_at(epoch, place)
    member.put(stamp, BufferedEvent(event(f"{epoch[0]}.{place}"), StreamHeader(NOTHING), 0), now_us)
    return out(member, now_us)


def is_late(member: OrderedReceiver, place: int) -> bool:
    return not member.put(
        position_at(EPOCH, place), BufferedEvent(event(f"1.{place}"), StreamHeader(NOTHING), 0), 0
    )


def all_holders(
    low: OrderPosition | None, high: OrderPosition, *held: PositionRange
) -> HolderReply:
    return HolderReply(low, high, "", held, is_complete=True)


def out(member: OrderedReceiver, now_us: int = 0) -> list[str]:
    found = [kept.event.payload.decode() for kept in member.ready(now_us)]
    member.check_invariants()
    return found


def begun(now_us: int = 0) -> OrderedReceiver:
    """One that has handed over the first place."""
    member = OrderedReceiver(PATIENCE_US)
    assert put(member, 1, now_us=now_us) == []
    member.on_holders(all_holders(None, position_at(EPOCH, 1)))
    assert out(member, now_us) == ["1.1"]
    return member


def test_a_new_member_asks_what_comes_before() -> None:
    member = OrderedReceiver(PATIENCE_US)
    put(member, 5)
    assert member.holder_query(NEXT, FIRST_QUERY_US - 1) is None
    assert member.holder_query(NEXT, FIRST_QUERY_US) == HolderQuery(
        None, position_at(EPOCH, 5), NEXT
    )
    assert member.holder_query(NEXT, FIRST_QUERY_US + 1) is None
    held = PositionRange(EPOCH, 3, 4, "a", 1)
    member.on_holders(all_holders(None, position_at(EPOCH, 5), held))
    assert out(member) == []
    assert member.position_queries(FIRST_QUERY_US + QUERY_US) == [held]
    member.on_void(PositionVoid(held))
    assert out(member) == ["1.5"]


def test_what_follows_is_handed_over_at_once_and_the_rest_waits() -> None:
    member = begun()
    assert put(member, 2) == ["1.2"]
    assert put(member, 4) == []
    assert put(member, 3) == ["1.3", "1.4"]
    assert member.gap is None


def test_it_waits_for_places_that_will_come_but_not_for_others() -> None:
    member = begun()
    put(member, 6)
    coming, void = PositionRange(EPOCH, 2, 3, "a", 1), PositionRange(EPOCH, 4, 5, "b", 1)
    member.on_holders(all_holders(position_at(EPOCH, 1), position_at(EPOCH, 6), coming, void))
    assert put(member, 3) == []
    assert put(member, 2) == ["1.2", "1.3"]
    member.on_void(PositionVoid(void))
    assert out(member) == ["1.6"]


def test_it_never_goes_back() -> None:
    member = begun()
    put(member, 3)
    member.on_holders(all_holders(position_at(EPOCH, 1), position_at(EPOCH, 3)))
    assert out(member) == ["1.3"]
    assert is_late(member, 2)
    assert out(member) == []


def test_a_place_is_taken_once() -> None:
    member = begun()
    assert put(member, 3) == []
    assert is_late(member, 3)
    assert put(member, 2) == ["1.2", "1.3"]


def test_a_later_epoch_waits_for_what_the_earlier_one_still_has() -> None:
    member = begun()
    assert put(member, 1, NEXT) == []
    held = PositionRange(EPOCH, 2, 2, "a", 1)
    member.on_holders(all_holders(position_at(EPOCH, 1), position_at(NEXT, 1), held))
    assert out(member) == []
    assert put(member, 2) == ["1.2", "2.1"]
    assert put(member, 2, NEXT) == ["2.2"]


def test_it_also_waits_for_others_that_the_sequencer_does_not_know_of() -> None:
    member = begun()
    low, high = position_at(EPOCH, 1), position_at(NEXT, 1)
    assert put(member, 1, NEXT) == []
    some = PositionRange(EPOCH, 2, MAX_INDEX, "x", 1)
    member.on_holders(all_holders(low, high), [some])
    assert out(member) == []
    assert member.position_queries(QUERY_US) == [some]
    assert put(member, 2) == ["1.2"]
    member.on_void(PositionVoid(some))
    assert out(member) == ["2.1"]


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    member = begun()
    put(member, 4)
    assert put(member, 3) == []
    member.on_holders(all_holders(position_at(EPOCH, 1), position_at(EPOCH, 3)))
    member.on_holders(all_holders(None, position_at(EPOCH, 4)))
    assert out(member) == []


def test_sources_that_are_lost_are_not_waited_for() -> None:
    member = begun()
    put(member, 3)
    held = PositionRange(EPOCH, 2, 2, "a", 1)
    member.on_holders(all_holders(position_at(EPOCH, 1), position_at(EPOCH, 3), held))
    member.skip_suspected(lambda source: source != "a")
    assert out(member) == []
    member.skip_suspected(lambda source: source == "a")
    assert out(member) == ["1.3"]


def test_what_was_sent_before_its_source_was_started_again_is_outdated() -> None:
    def kept(source: str, incarnation: int) -> BufferedEvent:
        sent = msgspec.structs.replace(event("x"), source=source, incarnation=incarnation)
        return BufferedEvent(sent, StreamHeader(NOTHING), 0)

    member = OrderedReceiver(PATIENCE_US)
    assert not member.is_outdated(kept("a", 1))
    assert not member.is_outdated(kept("a", 3))
    assert member.is_outdated(kept("a", 2))
    assert not member.is_outdated(kept("b", 2))
    assert not member.is_outdated(kept("a", 3))


def test_nobody_is_waited_for_for_ever() -> None:
    member = begun()
    put(member, 3)
    put(member, 5, now_us=10)
    assert out(member, PATIENCE_US - 1) == []
    assert out(member, PATIENCE_US) == ["1.3"]
    assert out(member, PATIENCE_US + 9) == []  # it came later
    assert out(member, PATIENCE_US + 10) == ["1.5"]


def test_what_its_source_does_not_wait_for_any_more_waits_for_nothing() -> None:
    member = begun()
    for place in (3, 5, 7):
        put(member, place)
    member.stop_waiting_before(position_at(EPOCH, 5))
    assert out(member) == ["1.3", "1.5"]
    assert is_late(member, 4)
    assert put(member, 6) == ["1.6", "1.7"]


def test_a_source_says_from_which_place_on_something_will_come() -> None:
    """Some places of a range are of others."""
    member = begun()
    put(member, 50)
    held = PositionRange(EPOCH, 2, 99, "a", 1)
    member.on_holders(all_holders(position_at(EPOCH, 1), position_at(EPOCH, 50), held))
    member.on_void(PositionVoid(PositionRange(EPOCH, 2, 30, "b", 1)))
    member.on_void(PositionVoid(PositionRange(EPOCH, 3, 98, "a", 1)))
    member.on_void(PositionVoid(PositionRange(EPOCH, 2, 30, "a", 1)))
    assert out(member) == []
    assert member.position_queries(QUERY_US) == [PositionRange(EPOCH, 31, 99, "a", 1)]
    member.on_void(PositionVoid(PositionRange(EPOCH, 31, 59, "a", 1)))
    assert out(member) == ["1.50"]


def test_who_has_the_places_may_come_in_several_parts() -> None:
    member = begun()
    put(member, 200)
    low, high = position_at(EPOCH, 1), position_at(EPOCH, 200)
    held = [
        PositionRange(EPOCH, 2 + place, 2 + place, f"s{place:03}", 1)
        for place in range(MAX_SHOWN + 1)
    ]
    member.holder_query(NEXT, FIRST_QUERY_US)
    member.on_holders(HolderReply(low, high, "", tuple(held[:MAX_SHOWN]), is_complete=False))
    assert out(member) == []
    question = HolderQuery(low, high, NEXT, held[MAX_SHOWN - 1].source)
    assert member.holder_query(NEXT, FIRST_QUERY_US) == question
    member.on_holders(HolderReply(low, high, "", (), is_complete=True))  # to the question before
    member.on_holders(HolderReply(low, high, question.after, (held[-1],), is_complete=True))
    assert member.position_queries(3 * QUERY_US) == held[:MAX_SHOWN]
    for each in held[:-1]:
        member.on_void(PositionVoid(each))
    assert out(member) == []
    member.on_void(PositionVoid(held[-1]))
    assert out(member) == ["1.200"]


@given(st.permutations(range(2, 12)), st.sets(st.integers(2, 11)), st.integers(0, 10))
def test_whatever_comes_when_places_only_grow(
    order: list[int], voids: set[int], patience: int
) -> None:
    member = begun()
    found = []
    late = 0
    for step, place in enumerate(order):
        late += is_late(member, place)
        found += put(member, place)
        if member.gap is not None and place in voids:
            held = tuple(
                PositionRange(EPOCH, each, each, "a", 1) for each in order if each not in voids
            )
            member.on_holders(all_holders(member.gap.low, member.gap.high, *held))
        if step == patience:
            found += out(member, PATIENCE_US)
        found += out(member)
    places = [int(each.partition(".")[2]) for each in found]
    assert places == sorted(set(places))
    assert len(places) + late + len(member) == len(order)
