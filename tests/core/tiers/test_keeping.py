from __future__ import annotations

from msgspec.structs import replace

from accord.core.overlay.signals import Carried
from accord.core.overlay.transit import EXPIRED
from accord.core.tiers.keeping import NO_ROOM, Keeping
from accord.core.tiers.messages import Had
from accord.core.tiers.options import TierOptions

OPTIONS = TierOptions(kept_events=4)
ALL = 1 << 30


def event(number: int, *, source: str = "s", channel: str = "c", deadline_us: int = 0) -> Carried:
    return Carried(source, 1, 0, (), channel, b"x" * 10, event=number, deadline_us=deadline_us)


def kept(*numbers: int, options: TierOptions = OPTIONS) -> Keeping:
    keeping = Keeping(options, now_us=1_000)
    for number in numbers:
        keeping.put(event(number), now_us=0)
    return keeping


def sent(keeping: Keeping, now_us: int = 0) -> list[tuple[int, int]]:
    found = [(down.number, down.event.event) for down in keeping.take(ALL, now_us)]
    keeping.check_invariants()
    return found


def offered(keeping: Keeping) -> dict[int, int]:
    """The places of events."""
    return {number: place for offer in keeping.offers() for place, _, number in offer.events}


def answer(keeping: Keeping, had: tuple[int, ...] = ()) -> None:
    """What a child says that has those events."""
    for offer in keeping.offers():
        places = tuple(place for place, _, number in offer.events if number in had)
        keeping.had(Had(1, keeping.turn, offer.events[-1][0], places))
    keeping.check_invariants()


def test_an_active_parent_numbers_and_sends_and_forgets_what_is_confirmed() -> None:
    keeping = kept()
    keeping.begin(1, is_active=True)
    for number in (7, 8, 9):
        keeping.put(event(number), now_us=0)
    assert sent(keeping) == [(1, 7), (2, 8), (3, 9)]
    keeping.heard(2, ())
    assert (len(keeping), keeping.top) == (1, 3)
    keeping.heard(2, ((3, 3),))
    assert sent(keeping) == [(3, 9)]


def test_a_standby_sends_nothing_and_forgets_what_the_child_has() -> None:
    keeping = kept(1, 2, 3)
    keeping.begin(1, is_active=False)
    assert sent(keeping) == []
    answer(keeping, had=(1, 2))
    assert list(offered(keeping)) == [3]


def test_it_goes_on_where_the_other_has_stopped() -> None:
    keeping = kept(1, 2, 3)
    keeping.begin(1, is_active=False)
    keeping.begin(2, is_active=True)
    assert sent(keeping) == []  # the child has to say first what it has
    answer(keeping, had=(1,))
    assert sent(keeping) == [(1, 2), (2, 3)]


def test_what_was_not_confirmed_is_offered_again_when_another_takes_over() -> None:
    keeping = kept()
    keeping.begin(1, is_active=True)
    keeping.put(event(1), now_us=0)
    keeping.put(event(2), now_us=0)
    assert len(sent(keeping)) == 2
    keeping.heard(1, ())
    keeping.begin(2, is_active=False)
    assert list(offered(keeping)) == [2]


def test_an_answer_to_an_earlier_turn_does_not_count() -> None:
    keeping = kept(1)
    keeping.begin(1, is_active=False)
    place = offered(keeping)[1]
    keeping.begin(2, is_active=True)
    keeping.had(Had(1, 1, place, (place,)))
    assert sent(keeping) == []
    answer(keeping)
    assert sent(keeping) == [(1, 1)]


def test_nothing_is_handed_over_after_a_later_one_of_its_line() -> None:
    keeping = kept(1, 2)
    keeping.put(event(3, channel="other"), now_us=0)
    keeping.begin(1, is_active=True)
    answer(keeping, had=(2,))
    assert sent(keeping) == [(1, 3)]
    assert keeping.passed == 1


def test_where_no_order_is_promised_a_later_one_says_nothing() -> None:
    keeping = Keeping(OPTIONS, now_us=0)
    for number in (1, 2):
        keeping.put(event(number), now_us=0, is_in_order=False)
    keeping.begin(1, is_active=True)
    answer(keeping, had=(2,))
    assert sent(keeping) == [(1, 1)]


def test_what_a_standby_had_to_give_up_is_lost_only_if_the_child_has_it_not() -> None:
    keeping = kept(1, 2, 3, 4, 5, 6)
    keeping.check_invariants()
    assert keeping.lost == {}
    keeping.begin(1, is_active=True)
    answer(keeping, had=(1,))
    assert [number for _, number in sent(keeping)] == [3, 4, 5, 6]
    assert keeping.lost == {NO_ROOM: 1}  # the second


def test_an_active_parent_sheds_the_oldest_that_was_not_sent() -> None:
    keeping = kept()
    keeping.begin(1, is_active=True)
    keeping.put(event(1), now_us=0)
    assert sent(keeping) == [(1, 1)]
    for number in range(2, 7):
        keeping.put(event(number), now_us=0)
    keeping.check_invariants()
    assert [each.event for each, _ in keeping.losses] == [2, 3]
    assert [number for _, number in sent(keeping)] == [4, 5, 6]


def test_what_has_expired_is_dropped_and_ages_are_told() -> None:
    keeping = kept()
    keeping.begin(1, is_active=True)
    keeping.put(event(1, deadline_us=1_000), now_us=0)
    keeping.put(replace(event(2, deadline_us=9_000), age_us=5), now_us=0)
    (down,) = keeping.take(ALL, now_us=2_000)
    assert (down.event.event, down.event.age_us) == (2, 2_005)
    assert keeping.lost == {EXPIRED: 1}


def test_what_is_not_wanted_any_more_is_not_kept_at_a_standby() -> None:
    keeping = kept(1)
    keeping.put(event(2, channel="other"), now_us=0)
    keeping.begin(1, is_active=False)
    keeping.keep_only(["oth/#", "other"])
    assert list(offered(keeping)) == [2]


def test_names_of_what_was_given_up_are_bounded() -> None:
    keeping = kept(*range(1, 100))
    keeping.check_invariants()
    assert len(keeping) <= OPTIONS.kept_events * 9
    assert keeping.lost[NO_ROOM] > 0
