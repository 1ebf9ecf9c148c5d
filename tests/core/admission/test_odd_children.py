"""What a child says that no child should: its parent and all others go on."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.admission.test_exchange import TRADES, S
from tests.core.admission.test_tier_exchange import KBIT, Tiers, advertising

from accord.core.admission.exchange import SERVICE
from accord.core.admission.messages import AdmissionMessage, Ask, RequestId, Wish
from accord.core.admission.posting import Advert, Post
from accord.core.admission.request import State
from accord.core.admission.requests import MAX_LEGS
from accord.core.admission.resources import MEMORY, link
from accord.core.overlay.signals import Said

HUGE = Wish("#", "TRUE", True, event_bytes=(1 << 64) - 1)


def say(tiers: Tiers, message: AdmissionMessage | Post) -> None:
    said = Said(SERVICE, "", msgspec.msgpack.encode(message))
    tiers.tiers["a"].heard("x", said, tiers.now_us)


def ask(wish: Wish, replaces: tuple[int, ...] = ()) -> Ask:
    return Ask(RequestId("x", 1, 900), 1, 1, ("x", "a"), wish, (), replaces)


@pytest.mark.parametrize("who", ["a", "c"])
def test_a_need_beyond_all_numbers_is_refused(who: str) -> None:
    tiers = advertising()
    tiers.admission(who).set_capacity(MEMORY, 10_000_000)
    say(tiers, ask(HUGE))
    tiers.run(S)
    assert tiers.expect("price > 1").state is State.ADMITTED


def test_nothing_is_promised_that_could_not_be_told() -> None:
    tiers = advertising(1e9)
    for _ in range(2):
        say(tiers, ask(HUGE))
        tiers.run(S)
    for pool in tiers.admission("a").books.state().values():
        assert 0 <= pool.promised < 1 << 63


def test_publishers_may_advertise_more_together_than_one_may() -> None:
    tiers = Tiers()
    for publisher in "pqr":
        tiers.exchanges["c"].advertise(publisher, "n", TRADES, 1e9, tiers.now_us)
    tiers.settle()
    assert tiers.expect("price > 1").state is State.ADMITTED
    assert tiers.promised()["x"] == 3_000_000_000_000


def test_so_many_legs_are_replaced_at_most() -> None:
    tiers = advertising()
    tiers.admission("a").set_capacity(link("x"), 100 * KBIT)
    guests = tiers.exchanges["a"].guests
    say(tiers, ask(Wish("#", "TRUE", True), tuple(range(2, 3 + MAX_LEGS))))
    assert (guests.dropped, len(guests)) == (1, 0)
    say(tiers, ask(Wish("#", "TRUE", True), tuple(range(2, 2 + MAX_LEGS))))
    assert (guests.dropped, len(guests)) == (1, 1)


def test_what_can_not_be_a_fact_is_not_kept() -> None:
    tiers = Tiers()
    exchange = tiers.exchanges["a"]
    long = Advert("c", "a = '" + 100_000 * "x" + "'", 1)
    short = Advert("c", "TRUE", 1)
    changes = (("p", "long", long), (100_000 * "p", "n", short), ("p", "n", short))
    say(tiers, Post(1, 9, 0, 3, 3, changes))
    tiers.settle()
    assert exchange._repeating.dropped == 2
    assert list(exchange._repeating._boards["x"].adverts) == [("p", "n")]
    assert tiers.admission("c").order.advertisements == 1
    say(tiers, Post(1, 9, 3, 4, 4, (("p", "n", long),)))
    tiers.settle()
    assert tiers.admission("c").order.advertisements == 0


def test_names_that_would_be_taken_for_others_are_left_out() -> None:
    tiers = Tiers()
    advert = Advert("c", "TRUE", 1)
    say(tiers, Post(1, 9, 0, 2, 2, (("y\0p", "n", advert), ("p", "m\nn", advert))))
    tiers.settle()
    assert tiers.admission("c").order.advertisements == 0
    assert tiers.exchanges["a"]._repeating._boards["x"].adverts == {}
