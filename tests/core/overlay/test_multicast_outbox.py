from __future__ import annotations

import msgspec

from accord.core.overlay.budgets import Budgets
from accord.core.overlay.neighbour_outbox import (
    EXPIRED,
    LINK_DOWN,
    MAX_SHARES,
    QUEUE_FULL,
    MulticastEvent,
    MulticastOutbox,
    NeighbourOutboxes,
    RecipientPart,
    copy_for,
)
from accord.core.overlay.options import MULTICAST, OverlayOptions, TransportRule, TransportSelector
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent

EVENT = TransitEvent("a", 1, 1, (), "video", b"frame")


class Given:
    """Copies that went the usual way."""

    def __init__(self) -> None:
        self.copies: list[tuple[str, TransitEvent]] = []

    def __call__(self, neighbour: str, event: TransitEvent, due_us: int, arrived_us: int) -> None:
        assert due_us >= 0
        assert arrived_us >= 0
        self.copies.append((neighbour, event))


def shared_transit(*reached: str, message_bytes: int = 1_100) -> MulticastOutbox:
    shared = MulticastOutbox(1 << 20)
    shared.set_reached(list(reached), message_bytes)
    return shared


def copy(
    *routes: int, note: bytes = b"", number: int = 1, payload: bytes = b"frame"
) -> TransitEvent:
    return msgspec.structs.replace(
        EVENT, routes=routes, header=note, number=number, payload=payload
    )


def test_copies_of_one_event_are_sent_once_with_the_share_of_each() -> None:
    shared = shared_transit("b", "c", "d")
    assert shared.put("b", copy(1, 2), 0, 0)
    assert shared.put("c", copy(3, note=b"tree"), 0, 0)
    assert shared.put("b", copy(4, number=2), 0, 0)
    assert shared.put("d", copy(5, number=2), 0, 0)
    shared.check_invariants()
    first, second = shared.take(100_000, 7, Given())
    assert first == MulticastEvent(
        msgspec.structs.replace(EVENT, age_us=7),
        (RecipientPart("b", (1, 2), b""), RecipientPart("c", (3,), b"tree")),
    )
    assert [each.neighbour for each in second.parts] == ["b", "d"]
    assert (shared.sent, shared.served) == (2, 4)
    assert shared.is_empty()
    at_c = copy_for(first, "c")
    assert at_c is not None
    assert (at_c.routes, at_c.header, at_c.payload) == ((3,), b"tree", b"frame")
    assert copy_for(first, "d") is None
    shared.check_invariants()


def test_what_is_for_one_only_goes_the_usual_way() -> None:
    shared, given = shared_transit("b", "c"), Given()
    assert shared.put("b", copy(1), 0, 0)
    assert not shared.put("far", copy(2), 0, 0), "the group does not reach it"
    assert shared.take(100_000, 0, given) == []
    assert given.copies == [("b", copy(1))]
    assert (shared.sent, shared.served) == (0, 0)


def test_who_does_not_hear_any_more_gets_a_copy() -> None:
    shared, given = shared_transit("b", "c", "d"), Given()
    for number, neighbour in enumerate("bcd"):
        assert shared.put(neighbour, copy(number), 0, 0)
    shared.set_reached(["b", "d"], 1_100)
    (event,) = shared.take(100_000, 0, given)
    assert [each.neighbour for each in event.parts] == ["b", "d"]
    assert given.copies == [("c", copy(1))]
    assert shared.put("b", copy(1), 0, 0)
    assert shared.put("d", copy(1), 0, 0)
    shared.set_reached([], 1_100)
    assert shared.take(100_000, 0, given) == []
    assert len(given.copies) == 3


def test_what_is_too_large_for_a_datagram_does_not_go_this_way() -> None:
    shared = shared_transit("b", "c")
    assert not shared.put("b", copy(payload=bytes(1_000)), 0, 0)
    long = msgspec.structs.replace(EVENT, channel="ä" * 400)
    assert not shared.put("b", long, 0, 0), "names count too"
    assert shared.put("b", copy(1), 0, 0)
    assert not shared.put("c", copy(2, note=bytes(600)), 0, 0), "nor its share"
    assert shared.put("c", copy(2), 0, 0)


def test_shares_of_an_event_are_bounded() -> None:
    names = [f"n{number}" for number in range(MAX_SHARES + 1)]
    shared = shared_transit(*names, message_bytes=100_000)
    assert [shared.put(name, copy(1), 0, 0) for name in names] == [True] * MAX_SHARES + [False]
    assert not shared.put(names[0], copy(1), 0, 0), "once for each"


def test_what_is_due_first_goes_first_and_what_is_useless_not_at_all() -> None:
    shared = shared_transit("b", "c")
    for number, due_us, deadline_us in ((1, 9_000, 0), (2, 5_000, 0), (3, 7_000, 100)):
        event = msgspec.structs.replace(copy(number=number), deadline_us=deadline_us)
        for neighbour in "bc":
            assert shared.put(neighbour, event, due_us, 0)
    assert [each.event.number for each in shared.take(100_000, 100, Given())] == [2, 1]
    assert [(event.number, cause) for event, cause in shared.dropped] == [(3, EXPIRED)]


def test_a_full_queue_drops_and_counts() -> None:
    shared = MulticastOutbox(1_000)
    shared.set_reached(["b", "c"], 10_000)
    for number in range(5):
        for neighbour in "bc":
            shared.put(neighbour, copy(number=number, payload=bytes(300)), 0, 0)
        shared.check_invariants()
    assert {cause for _, cause in shared.dropped} == {QUEUE_FULL}
    assert len(shared.take(100_000, 0, Given())) == 2


def test_transits_share_what_is_to_go_by_multicast() -> None:
    transits = NeighbourOutboxes("a", Budgets(), bytes_limit=1_000_000)
    transits.transport_selector = TransportSelector([TransportRule(("video",), MULTICAST)])
    shared = shared_transit("b", "c")
    transits.put_multicast = shared.put
    for neighbour in "bcd":
        transits.open(neighbour)
    transits.forward(EVENT, {"b": [1], "c": [2], "d": [3], "gone": [4]}, 0)
    (event,) = shared.take(100_000, 0, Given())
    assert [(each.neighbour, each.routes) for each in event.parts] == [("b", (1,)), ("c", (2,))]
    assert event.event.trail == (("a", 0),)
    (alone,) = transits.all["d"].take_droppable(10_000, 10_000, 0)
    assert alone.routes == (3,)
    transits.forward(msgspec.structs.replace(EVENT, qos=1), {"b": [1], "c": [2]}, 0)
    assert shared.is_empty(), "it must not be lost"
    assert len(transits.all["b"].take(10_000, 0)) == 1


def test_an_overlay_shares_and_takes_its_share() -> None:
    def overlay(name: str) -> Overlay:
        made = Overlay(name, 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
        made.outboxes.transport_selector = TransportSelector([TransportRule(("#",), MULTICAST)])
        return made

    one, other = overlay("a"), overlay("b")
    came: list[tuple[str, TransitEvent]] = []
    other.on_template_event = lambda neighbour, event, _: came.append((neighbour, event))
    for neighbour in ("b", "c", "d"):
        one.link_up(neighbour, 0)
    other.link_up("a", 0)
    assert one.take_multicast(10_000, 0) == []
    one.set_group_reach(["b", "c"], 1_100)
    for neighbour in ("b", "c"):
        one.forward(neighbour, msgspec.structs.replace(EVENT, template="own", header=b"n"))
    (event,) = one.take_multicast(10_000, 0)
    other.receive_multicast("a", event, 0)
    other.receive_multicast("stranger", event, 0)
    assert [(neighbour, each.header) for neighbour, each in came] == [("a", b"n")]
    overlay("z").receive_multicast("a", event, 0)
    for neighbour in ("b", "c"):
        one.forward(neighbour, msgspec.structs.replace(EVENT, template="own", number=2))
    one.link_down("b", 0)
    one.set_group_reach(["c"], 1_100)
    assert one.take_multicast(10_000, 0) == []
    assert one.dropped[LINK_DOWN] == 1
    assert len(one.take_droppable("c", 10_000, 10_000, 0)) == 1
    one.check_invariants()
