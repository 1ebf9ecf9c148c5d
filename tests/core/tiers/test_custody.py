from __future__ import annotations

from msgspec.structs import replace

from accord.core.overlay.neighbour_outbox import EXPIRED
from accord.core.overlay.signalling import TransitEvent
from accord.core.tiers.custody import NO_ROOM, CustodyBuffer
from accord.core.tiers.messages import InventoryReply, TierOptions

OPTIONS = TierOptions(kept_events=4)
ALL = 1 << 30


def event(
    number: int,
    *,
    source: str = "s",
    channel: str = "c",
    deadline_us: int = 0,
    importance: int = 0,
    size: int = 10,
) -> TransitEvent:
    return TransitEvent(
        source,
        1,
        0,
        (),
        channel,
        b"x" * size,
        event=number,
        deadline_us=deadline_us,
        importance=importance,
    )


def kept(*numbers: int, options: TierOptions = OPTIONS) -> CustodyBuffer:
    keeping = CustodyBuffer(options, now_us=1_000)
    for number in numbers:
        keeping.put(event(number), now_us=0)
    return keeping


def sent(keeping: CustodyBuffer, now_us: int = 0) -> list[tuple[int, int]]:
    found = [(down.number, down.event.event) for down in keeping.take(ALL, now_us)]
    keeping.check_invariants()
    return found


def offered(keeping: CustodyBuffer) -> dict[int, int]:
    """The places of events."""
    return {number: place for offer in keeping.offers() for place, _, number in offer.events}


def answer(keeping: CustodyBuffer, had: tuple[int, ...] = ()) -> None:
    """What a child says that has those events."""
    for offer in keeping.offers():
        places = tuple(place for place, _, number in offer.events if number in had)
        keeping.on_inventory_reply(
            InventoryReply(1, keeping.parent_epoch, offer.events[-1][0], places), 0
        )
    keeping.check_invariants()


def test_an_active_parent_numbers_and_sends_and_forgets_what_is_confirmed() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    for number in (7, 8, 9):
        keeping.put(event(number), now_us=0)
    assert sent(keeping) == [(1, 7), (2, 8), (3, 9)]
    keeping.on_ack(2, (), 0)
    assert (len(keeping), keeping.top) == (1, 3)
    keeping.on_ack(2, ((3, 3),), 0)
    assert sent(keeping) == [(3, 9)]


def test_a_standby_sends_nothing_and_forgets_what_the_child_has() -> None:
    keeping = kept(1, 2, 3)
    keeping.begin(1, 0, is_active=False)
    assert sent(keeping) == []
    answer(keeping, had=(1, 2))
    assert list(offered(keeping)) == [3]


def test_it_goes_on_where_the_other_has_stopped() -> None:
    keeping = kept(1, 2, 3)
    keeping.begin(1, 0, is_active=False)
    keeping.begin(2, 0, is_active=True)
    assert sent(keeping) == []  # the child has to say first what it has
    answer(keeping, had=(1,))
    assert sent(keeping) == [(1, 2), (2, 3)]


def test_what_was_not_confirmed_is_offered_again_when_another_takes_over() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    keeping.put(event(1), now_us=0)
    keeping.put(event(2), now_us=0)
    assert len(sent(keeping)) == 2
    keeping.on_ack(1, (), 0)
    keeping.begin(2, 0, is_active=False)
    assert list(offered(keeping)) == [2]


def test_an_answer_to_an_earlier_turn_does_not_count() -> None:
    keeping = kept(1)
    keeping.begin(1, 0, is_active=False)
    place = offered(keeping)[1]
    keeping.begin(2, 0, is_active=True)
    keeping.on_inventory_reply(InventoryReply(1, 1, place, (place,)), 0)
    assert sent(keeping) == []
    answer(keeping)
    assert sent(keeping) == [(1, 1)]


def test_nothing_is_handed_over_after_a_later_one_of_its_line() -> None:
    keeping = kept(1, 2)
    keeping.put(event(3, channel="other"), now_us=0)
    keeping.begin(1, 0, is_active=True)
    answer(keeping, had=(2,))
    assert sent(keeping) == [(1, 3)]
    assert keeping.passed == 1


def test_where_no_order_is_promised_a_later_one_says_nothing() -> None:
    keeping = CustodyBuffer(OPTIONS, now_us=0)
    for number in (1, 2):
        keeping.put(event(number), now_us=0, is_in_order=False)
    keeping.begin(1, 0, is_active=True)
    answer(keeping, had=(2,))
    assert sent(keeping) == [(1, 1)]


def test_what_a_standby_had_to_give_up_is_lost_only_if_the_child_has_it_not() -> None:
    keeping = kept(1, 2, 3, 4, 5, 6)
    keeping.check_invariants()
    assert keeping.lost == {}
    keeping.begin(1, 0, is_active=True)
    answer(keeping, had=(1,))
    assert [number for _, number in sent(keeping)] == [3, 4, 5, 6]
    assert keeping.lost == {NO_ROOM: 1}  # the second


def test_an_active_parent_sheds_the_oldest_that_was_not_sent() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    keeping.put(event(1), now_us=0)
    assert sent(keeping) == [(1, 1)]
    for number in range(2, 7):
        keeping.put(event(number), now_us=0)
    keeping.check_invariants()
    assert [each.event for each, _ in keeping.drops] == [2, 3]
    assert [number for _, number in sent(keeping)] == [4, 5, 6]


def test_what_has_expired_is_dropped_and_ages_are_told() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    keeping.put(event(1, deadline_us=1_000), now_us=0)
    keeping.put(replace(event(2, deadline_us=9_000), age_us=5), now_us=0)
    (down,) = keeping.take(ALL, now_us=2_000)
    assert (down.event.event, down.event.age_us) == (2, 2_005)
    assert keeping.lost == {EXPIRED: 1}


def test_what_is_not_wanted_any_more_is_not_kept_at_a_standby() -> None:
    keeping = kept(1)
    keeping.put(event(2, channel="other"), now_us=0)
    keeping.begin(1, 0, is_active=False)
    keeping.keep_only(lambda channel: channel == "other")
    assert list(offered(keeping)) == [2]


def test_names_of_what_was_given_up_are_bounded() -> None:
    keeping = kept(*range(1, 100))
    keeping.check_invariants()
    assert len(keeping) <= OPTIONS.kept_events * 9
    assert keeping.lost[NO_ROOM] > 0


def test_the_important_leave_first_and_what_is_in_order_stays_so() -> None:
    keeping = CustodyBuffer(TierOptions(), now_us=0)
    keeping.begin(1, 0, is_active=True)
    for number in (1, 2, 3):
        keeping.put(event(number), now_us=0)
    keeping.put(event(4, channel="alarm", importance=7), now_us=0)
    keeping.put(event(5, channel="slow"), now_us=0)
    keeping.put(event(6, channel="slow", importance=5), now_us=0)
    assert [number for _, number in sent(keeping)] == [4, 5, 6, 1, 2, 3]


def test_of_what_may_be_lost_the_least_important_goes_first() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    for number, importance in enumerate((5, 1, 0, 1, 6, 0), 1):
        keeping.put(event(number, importance=importance), now_us=0, is_in_order=False)
        keeping.check_invariants()
    assert [each.event for each, _ in keeping.drops] == [3, 6]
    assert keeping.lost == {NO_ROOM: 2}


WAITS = 1 << 62


def test_it_is_full_by_half_of_what_must_not_be_lost() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    for number in range(1, 9):
        keeping.put(event(number, channel="loose"), now_us=0)
    assert not keeping.is_full()
    keeping.put(event(10), now_us=0, child_timeout_us=WAITS)
    assert not keeping.is_full()
    assert keeping.is_full(events=1)  # that are about to come
    keeping.put(event(11), now_us=0, child_timeout_us=WAITS)
    assert keeping.is_full()
    keeping.check_invariants()
    assert [each.channel for each, _ in keeping.drops] == ["loose"] * 6


def test_what_could_not_be_stopped_in_time_takes_the_place_of_what_may_be_lost() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    keeping.put(event(1, channel="loose", importance=7), now_us=0)
    for number in (2, 3, 4, 5):
        keeping.put(event(number), now_us=0, child_timeout_us=WAITS)
    assert [number for _, number in sent(keeping)] == [2, 3, 4, 5]
    assert keeping.lost == {NO_ROOM: 1}


def test_what_is_larger_than_the_room_is_kept_if_there_is_some() -> None:
    keeping = CustodyBuffer(TierOptions(kept_bytes=1_000), now_us=0)
    keeping.begin(1, 0, is_active=True)
    keeping.put(event(1), now_us=0, child_timeout_us=WAITS)
    keeping.put(event(2, size=5_000), now_us=0, child_timeout_us=WAITS)
    assert [number for _, number in sent(keeping)] == [1, 2]
    assert keeping.is_full()


def test_for_a_child_that_gets_nothing_the_oldest_of_the_channel_is_given_up() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    keeping.put(event(1, channel="waits"), now_us=0, child_timeout_us=WAITS)
    keeping.put(event(2), now_us=0, child_timeout_us=100)
    keeping.put(event(3), now_us=99, child_timeout_us=100)  # which could not be stopped
    assert keeping.lost == {}
    keeping.put(event(4), now_us=100, child_timeout_us=100)
    keeping.check_invariants()
    assert [each.event for each, _ in keeping.drops] == [2, 3, 4]
    assert [number for _, number in sent(keeping)] == [1]
    keeping.on_ack(1, (), 150)
    keeping.put(event(5), now_us=180, child_timeout_us=100)
    assert [number for _, number in sent(keeping)] == [5]


def test_what_the_child_may_have_from_its_other_parent_is_not_lost_yet() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    for number in range(1, 7):
        keeping.put(event(number), now_us=0, child_timeout_us=WAITS, is_elsewhere=True)
    keeping.check_invariants()
    assert keeping.lost == {}
    keeping.begin(2, 0, is_active=False)
    answer(keeping, had=(1,))
    assert keeping.lost == {}
    keeping.begin(3, 0, is_active=True)
    answer(keeping)
    assert keeping.lost == {NO_ROOM: 1}  # the second
    assert [number for _, number in sent(keeping)] == [3, 4, 5, 6]


def test_what_expires_at_a_standby_is_lost_only_if_the_child_has_it_not() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=False)
    keeping.put(event(1, deadline_us=100), now_us=0)
    keeping.put(event(2, deadline_us=100), now_us=0)
    keeping.advance(100)
    keeping.check_invariants()
    assert (keeping.lost, keeping.bytes) == ({}, 0)
    keeping.begin(2, 0, is_active=True)
    answer(keeping, had=(1,))
    assert keeping.lost == {EXPIRED: 1}


def test_what_is_not_answered_is_not_offered_at_once_again() -> None:
    keeping = CustodyBuffer(TierOptions(), now_us=0)
    keeping.begin(1, 0, is_active=False)
    for number in range(1_500):
        keeping.put(event(number), now_us=0)
    assert [len(each.events) for each in keeping.offers()] == [512, 512, 476]
    said = [len(keeping.offers()) for _ in range(90)]
    assert sum(said) == 10
    (last,) = keeping._open[next(iter(keeping._open))].events[-1:]
    keeping.on_inventory_reply(InventoryReply(1, 1, last[0], ()), 0)
    assert [len(keeping.offers()) for _ in range(8)] == [0] * 8
    answer(keeping, had=tuple(range(512, 1_500)))
    keeping.check_invariants()


def test_a_channel_that_was_shed_by_others_has_room_again_when_they_are_gone() -> None:
    keeping = kept()
    keeping.begin(1, 0, is_active=True)
    for number in (1, 2):
        keeping.put(event(number), now_us=0, child_timeout_us=WAITS)
    assert keeping.is_full()
    sent(keeping)
    keeping.on_ack(1, (), 5)
    assert not keeping.is_full()
    assert keeping.moved_us == 5
