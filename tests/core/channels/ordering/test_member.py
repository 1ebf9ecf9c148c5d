from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.channel_nets import event

from accord.core.channels.ordering.member import (
    ASK_US,
    FIRST_ASK_US,
    PATIENCE_US,
    Member,
)
from accord.core.channels.ordering.stamps import Between, Epoch, Held, Holders, Void, stamp_of
from accord.core.channels.streams.messages import NOTHING, Note
from accord.core.channels.streams.stream import Kept

EPOCH = (1, "q", 1)
NEXT = (2, "r", 1)


def put(member: Member, place: int, epoch: Epoch = EPOCH, now_us: int = 0) -> list[str]:
    stamp = stamp_of(epoch, place)
    member.put(stamp, Kept(event(f"{epoch[0]}.{place}"), Note(NOTHING), 0))
    return out(member, now_us)


def out(member: Member, now_us: int = 0) -> list[str]:
    found = [kept.event.payload.decode() for kept in member.ready(now_us)]
    member.check_invariants()
    return found


def begun(now_us: int = 0) -> Member:
    """One that has handed over the first place."""
    member = Member()
    assert put(member, 1, now_us=now_us) == []
    member.holders(Holders(None, stamp_of(EPOCH, 1), ()))
    assert out(member, now_us) == ["1.1"]
    return member


def test_a_new_member_asks_what_comes_before() -> None:
    member = Member()
    put(member, 5)
    assert member.question(NEXT, FIRST_ASK_US - 1) is None
    assert member.question(NEXT, FIRST_ASK_US) == Between(None, stamp_of(EPOCH, 5), NEXT)
    assert member.question(NEXT, FIRST_ASK_US + 1) is None
    held = Held(EPOCH, 3, 4, "a", 1)
    member.holders(Holders(None, stamp_of(EPOCH, 5), (held,)))
    assert out(member) == []
    assert member.questions(FIRST_ASK_US + ASK_US) == [held]
    member.void(Void(held))
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
    coming, void = Held(EPOCH, 2, 3, "a", 1), Held(EPOCH, 4, 5, "b", 1)
    member.holders(Holders(stamp_of(EPOCH, 1), stamp_of(EPOCH, 6), (coming, void)))
    assert put(member, 3) == []
    assert put(member, 2) == ["1.2", "1.3"]
    member.void(Void(void))
    assert out(member) == ["1.6"]


def test_it_never_goes_back() -> None:
    member = begun()
    put(member, 3)
    member.holders(Holders(stamp_of(EPOCH, 1), stamp_of(EPOCH, 3), ()))
    assert out(member) == ["1.3"]
    assert put(member, 2) == []
    assert member.late == 1


def test_a_later_epoch_waits_for_what_the_earlier_one_still_has() -> None:
    member = begun()
    assert put(member, 1, NEXT) == []
    held = Held(EPOCH, 2, 2, "a", 1)
    member.holders(Holders(stamp_of(EPOCH, 1), stamp_of(NEXT, 1), (held,)))
    assert out(member) == []
    assert put(member, 2) == ["1.2", "2.1"]
    assert put(member, 2, NEXT) == ["2.2"]


def test_an_answer_to_an_earlier_question_does_not_count() -> None:
    member = begun()
    put(member, 4)
    assert put(member, 2) == ["1.2"]
    member.holders(Holders(stamp_of(EPOCH, 1), stamp_of(EPOCH, 4), ()))
    assert out(member) == []


def test_sources_that_are_lost_are_not_waited_for() -> None:
    member = begun()
    put(member, 3)
    held = Held(EPOCH, 2, 2, "a", 1)
    member.holders(Holders(stamp_of(EPOCH, 1), stamp_of(EPOCH, 3), (held,)))
    member.wait_less(lambda source: source != "a", 10)
    assert out(member) == []
    member.wait_less(lambda source: source == "a", 10)
    assert out(member) == ["1.3"]


def test_what_was_sent_before_its_source_was_started_again_is_outdated() -> None:
    def kept(source: str, incarnation: int) -> Kept:
        sent = msgspec.structs.replace(event("x"), source=source, incarnation=incarnation)
        return Kept(sent, Note(NOTHING), 0)

    member = Member()
    assert not member.is_outdated(kept("a", 1))
    assert not member.is_outdated(kept("a", 3))
    assert member.is_outdated(kept("a", 2))
    assert not member.is_outdated(kept("b", 2))
    assert not member.is_outdated(kept("a", 3))


def test_nobody_is_waited_for_for_ever() -> None:
    member = begun()
    put(member, 3)
    member.wait_less(lambda _: False, PATIENCE_US - 1)
    assert out(member) == []
    member.wait_less(lambda _: False, PATIENCE_US)
    assert out(member) == ["1.3"]
    assert member.given_up == 1


@given(st.permutations(range(2, 12)), st.sets(st.integers(2, 11)), st.integers(0, 10))
def test_whatever_comes_when_places_only_grow(
    order: list[int], voids: set[int], patience: int
) -> None:
    member = begun()
    found = []
    for step, place in enumerate(order):
        found += put(member, place)
        if member.gap is not None and place in voids:
            held = tuple(Held(EPOCH, each, each, "a", 1) for each in order if each not in voids)
            member.holders(Holders(member.position, member.gap.high, held))
        if step == patience:
            member.wait_less(lambda _: False, PATIENCE_US)
        found += out(member)
    places = [int(each.partition(".")[2]) for each in found]
    assert places == sorted(set(places))
    assert len(places) + member.late + sum(1 for _ in member._waiting) == len(order)
