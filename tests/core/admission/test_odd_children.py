"""What a child says that no child should: its parent and all others go on."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.admission.test_overlay_admission import TRADES, S
from tests.core.admission.test_secondary_admission import KBIT, Tiers, advertising

from accord.core.admission import child_reservations as guest_module
from accord.core.admission import transit_reservations as hop_module
from accord.core.admission.admission import Admission
from accord.core.admission.advertisement_sync import AdvertisementDelta, AdvertisementRecord
from accord.core.admission.child_reservations import MAX_CHILD_RESERVATIONS, ChildReservations
from accord.core.admission.messages import (
    AdmissionMessage,
    FlowSpec,
    NodeVerdict,
    Release,
    ReservationId,
    Reserve,
    ReserveReply,
)
from accord.core.admission.options import AdmissionOptions
from accord.core.admission.origin_reservations import MAX_REQUESTS
from accord.core.admission.overlay_admission import SERVICE
from accord.core.admission.reservation import ReservationState
from accord.core.admission.resources import MEMORY, link
from accord.core.admission.transit_reservations import MAX_LEGS
from accord.core.channels.channels import Channels
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TemplateMessage
from accord.core.overlay.tier_links import TierLink
from accord.core.tiers.feedback_router import FeedbackRouter

HUGE = FlowSpec("#", "TRUE", True, event_bytes=(1 << 64) - 1)


def say(tiers: Tiers, message: AdmissionMessage | AdvertisementDelta) -> None:
    said = TemplateMessage(SERVICE, "", msgspec.msgpack.encode(message))
    tiers.tiers["a"].on_message("x", said, tiers.now_us)


def ask(wish: FlowSpec, replaces: tuple[int, ...] = ()) -> Reserve:
    return Reserve(ReservationId("x", 1, 900), 1, 1, ("x", "a"), wish, (), replaces)


@pytest.mark.parametrize("who", ["a", "c"])
def test_a_need_beyond_all_numbers_is_refused(who: str) -> None:
    tiers = advertising()
    tiers.admission(who).set_capacity(MEMORY, 10_000_000)
    say(tiers, ask(HUGE))
    tiers.run(S)
    assert tiers.expect("price > 1").state is ReservationState.ADMITTED


def test_nothing_is_promised_that_could_not_be_told() -> None:
    tiers = advertising(1e9)
    for _ in range(2):
        say(tiers, ask(HUGE))
        tiers.run(S)
    for pool in tiers.admission("a").reservations.state().values():
        assert 0 <= pool.reserved < 1 << 63


def test_publishers_may_advertise_more_together_than_one_may() -> None:
    tiers = Tiers()
    for publisher in "pqr":
        tiers.exchanges["c"].advertise(publisher, "n", TRADES, 1e9, tiers.now_us)
    tiers.settle()
    assert tiers.expect("price > 1").state is ReservationState.ADMITTED
    assert tiers.promised()["x"] == 3_000_000_000_000


def test_so_many_legs_are_replaced_at_most() -> None:
    tiers = advertising()
    tiers.admission("a").set_capacity(link("x"), 100 * KBIT)
    guests = tiers.exchanges["a"].child_reservations
    say(tiers, ask(FlowSpec("#", "TRUE", True), tuple(range(2, 3 + MAX_LEGS))))
    assert (guests.dropped, len(guests)) == (1, 0)
    say(tiers, ask(FlowSpec("#", "TRUE", True), tuple(range(2, 2 + MAX_LEGS))))
    assert (guests.dropped, len(guests)) == (1, 1)


def guest(child: str, number: int, where: str = "TRUE") -> Reserve:
    return Reserve(
        ReservationId(child, 1, number), 1, 1, (child, "a"), FlowSpec("trades", where, True)
    )


def answers(guests: ChildReservations) -> list[ReserveReply]:
    found = [each for _, each in guests.sends if isinstance(each, ReserveReply)]
    guests.sends.clear()
    return found


def test_one_child_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_module, "MAX_CHILD_RESERVATIONS", 8)
    guests = ChildReservations(Admission("a", 1, AdmissionOptions()))
    for child, count in (("x", 4), ("y", 2), ("z", 1)):
        for number in range(8):
            guests.receive(child, guest(child, number), 0)
        guests.check_invariants()
        said = [each.verdicts[0] for each in answers(guests)]
        assert said[:count] == [NodeVerdict("a")] * count
        full = NodeVerdict("a", "memory", f"secondary node {child}", 1_010, 0)
        assert said[count:] == [full] * (8 - count)
    guests.receive("x", Release(ReservationId("x", 1, 0), 1, ("x", "a")), 1)
    guests.receive("x", guest("x", 9), 1)
    assert not answers(guests)[0].verdicts[0].is_agreed, "there are more now who share"
    guests.receive("z", guest("z", 9), 1)
    assert answers(guests)[0].verdicts == (NodeVerdict("a"),)
    for child in "xyz":
        guests.on_left(child)
    guests.check_invariants()
    assert len(guests) == 0


def test_long_wishes_are_shared_like_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_module, "MAX_BYTES", 40_000)
    guests = ChildReservations(Admission("a", 1, AdmissionOptions()))
    long = f"a = '{'x' * 9_000}'"
    for child in "xy":
        for number in range(4):
            guests.receive(child, guest(child, number, long), 0)
        guests.check_invariants()
        said = [each.verdicts[0].is_agreed for each in answers(guests)]
        assert said == [True, child == "x", False, False]


def test_clients_have_as_much_room_as_children() -> None:
    assert MAX_REQUESTS - MAX_CHILD_RESERVATIONS >= MAX_CHILD_RESERVATIONS


def test_one_neighbour_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever it says that its requests are of."""
    monkeypatch.setattr(hop_module, "MAX_HOLDS", 8)
    admission = Admission("a", 1, AdmissionOptions())
    for neighbour, count in (("x", 4), ("y", 2)):
        for number in range(8):
            id_ = ReservationId(f"{neighbour} {number}", 1, number)
            path = (id_.origin, neighbour, "a")
            wish = FlowSpec("trades", "TRUE", True)
            admission.receive(
                neighbour, Reserve(id_, 1, 1, path, wish, (NodeVerdict(neighbour),)), 0
            )
        admission.check_invariants()
        said = [each.verdicts[1] for _, each in admission.sends if isinstance(each, ReserveReply)]
        admission.sends.clear()
        assert said[:count] == [NodeVerdict("a")] * count
        assert said[count:] == [NodeVerdict("a", "memory", f"link {neighbour}", 510, 0)] * (
            8 - count
        )


@pytest.mark.parametrize("replaces", [tuple(range(2, 3 + MAX_LEGS)), (2, 1)], ids=len)
def test_a_neighbour_replaces_some_other_legs(replaces: tuple[int, ...]) -> None:
    admission = Admission("a", 1, AdmissionOptions())
    wish = FlowSpec("trades", "TRUE", True)
    ask = Reserve(ReservationId("x", 1, 1), 1, 1, ("x", "a"), wish, (), replaces)
    admission.receive("x", ask, 0)
    assert (admission.dropped, admission.sends) == (1, [])


def test_what_can_not_be_a_fact_is_not_kept() -> None:
    tiers = Tiers()
    exchange = tiers.exchanges["a"]
    long = AdvertisementRecord("c", "a = '" + 100_000 * "x" + "'", 1)
    short = AdvertisementRecord("c", "TRUE", 1)
    changes = (("p", "long", long), (100_000 * "p", "n", short), ("p", "n", short))
    for version, change in enumerate(changes):
        say(tiers, AdvertisementDelta(1, 9, version, version + 1, 3, (change,)))
    tiers.settle()
    assert exchange._child_advertisements.dropped == 2
    assert list(exchange._child_advertisements._receivers["x"].adverts) == [("p", "n")]
    assert tiers.admission("c").poset.advertisements == 1
    say(tiers, AdvertisementDelta(1, 9, 3, 4, 4, (("p", "n", long),)))
    tiers.settle()
    assert tiers.admission("c").poset.advertisements == 0


def post_many(tiers: Tiers, child: str, count: int) -> int:
    """How many of that child's advertisements all nodes are told."""
    advert = AdvertisementRecord("c", f"a = '{'x' * 500}'", 1)
    for first in range(0, count, 50):
        changes = tuple(("p", str(each), advert) for each in range(first, first + 50))
        said = TemplateMessage(
            SERVICE,
            "",
            msgspec.msgpack.encode(AdvertisementDelta(1, 9, first, first + 50, count, changes)),
        )
        tiers.tiers["a"].on_message(child, said, tiers.now_us)
    return len(tiers.exchanges["a"]._child_advertisements._receivers[child].adverts)


def test_what_one_child_advertises_leaves_room_for_others() -> None:
    tiers = Tiers()
    tiers.tiers["a"].set("y", TierLink(5_000, True, 1, 1))
    told = post_many(tiers, "x", 1_000)
    assert 100 < told < 200, "half of what there is"
    assert 50 < post_many(tiers, "y", 1_000) < 100, "half of the rest"
    tiers.exchanges["a"].advertise("client", "n", TRADES, 1, tiers.now_us)
    tiers.tiers["a"].on_left("x")
    assert post_many(tiers, "y", 1_000) < told
    tiers.tiers["a"].on_left("y")
    assert tiers.exchanges["a"]._child_advertisements._bytes == {}
    assert tiers.channels["a"].overlay.store.room("advert") > 200_000


def test_whatever_is_advertised_there_is_room_for_what_nodes_must_know() -> None:
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    channels = Channels(overlay)
    past = channels.serve(
        "$past", lambda context: HistoryProtocol(context, overlay.store, overlay.interests)
    )
    answering = FeedbackRouter(channels)
    number = 0
    while overlay.store.put("advert", str(number), b"x" * 100):
        number += 1
    while overlay.store.put("property", str(number), b""):
        number += 1
    assert overlay.directory.create(ChannelDefinition("uav/#", template="reliable")) is None
    answering.on_joined("x", 1)
    past.announce_history()
    assert answering.destinations("x") == ["a"]
    assert overlay.store.get("a", "past", "") is not None
    overlay.check_invariants()


def test_more_than_a_child_posts_at_once_is_nothing() -> None:
    tiers = Tiers()
    long = AdvertisementRecord("c", f"a = '{'x' * 15_000}'", 1)
    say(
        tiers, AdvertisementDelta(1, 9, 0, 5, 5, tuple(("p", str(each), long) for each in range(5)))
    )
    boards = tiers.exchanges["a"]._child_advertisements._receivers
    assert boards["x"].adverts == {}
    say(
        tiers, AdvertisementDelta(1, 9, 0, 4, 4, tuple(("p", str(each), long) for each in range(4)))
    )
    assert len(boards["x"].adverts) == 4


def test_names_that_would_be_taken_for_others_are_left_out() -> None:
    tiers = Tiers()
    advert = AdvertisementRecord("c", "TRUE", 1)
    say(tiers, AdvertisementDelta(1, 9, 0, 2, 2, (("y\0p", "n", advert), ("p", "m\nn", advert))))
    tiers.settle()
    assert tiers.admission("c").poset.advertisements == 0
    assert tiers.exchanges["a"]._child_advertisements._receivers["x"].adverts == {}
