"""Secondary nodes with one name: their events are kept apart, and people are told."""

from __future__ import annotations

import msgspec
import pytest

from accord.core.channels.channels import SHIPPED, Channels
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Interest
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.state_store import StateStore
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.router.router import Router
from accord.core.tiers.child_name_conflicts import SURE_US, ChildNameConflicts
from accord.core.tiers.child_receivers import ChildReceivers
from accord.core.tiers.custody import CustodyBuffer
from accord.core.tiers.feedback_router import CHILD, FeedbackRouter
from accord.core.tiers.messages import NUMBERS, TierOptions

EARLY, LATE = 1_000, 2_000  # when each of them was started


def children(template: str) -> ChildReceivers:
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    channels = Channels(overlay, SHIPPED)
    assert overlay.directory.create(ChannelDefinition("room", template=template)) is None
    return ChildReceivers(Router([], Policies(PolicySet())), channels, FeedbackRouter(channels))


def event(incarnation: int, number: int) -> TransitEvent:
    original = incarnation * NUMBERS + number
    return TransitEvent(
        "kid", 1, 0, (), "room", b"x", event=original, child="kid", child_number=original
    )


@pytest.mark.parametrize("template", ["reliable", "total_order", "routed"])
def test_events_of_namesakes_come_once_each_and_none_vanishes(template: str) -> None:
    known = children(template)
    assert known.is_new(event(LATE, 1))
    assert known.is_new(event(EARLY, 1))
    assert not known.is_new(event(EARLY, 1)), "by another parent"
    assert known.is_new(event(LATE, 2))
    assert known.is_new(event(EARLY, 2))
    assert known.has_seen(event(LATE, 2))
    assert not known.has_seen(event(LATE, 3))
    known.check_invariants()


def test_a_child_gets_what_its_namesake_publishes_but_not_its_own() -> None:
    known = children("reliable")
    known.incarnation_of = lambda _: LATE
    known.set_interest("kid", "1", Interest("room"))
    for incarnation, found in ((LATE, []), (EARLY, ["kid"])):
        known.interested["kid"] = None  # type: ignore[assignment]
        assert known.receivers_of(event(incarnation, 1)) == found


def test_what_a_namesake_published_before_is_not_passed_over() -> None:
    keeping = CustodyBuffer(TierOptions(), 0)
    keeping.begin(1, 0, is_active=True)
    for each in (event(LATE, 1), event(EARLY, 1), event(LATE, 2)):
        keeping.put(each, 0)
    lines = [each.line for each in keeping.entries.values()]
    assert lines[0] == lines[2] != lines[1]


class Pair:
    """Two parents that hear of each other."""

    def __init__(self) -> None:
        self.map = LinkStateMap()
        for one, other in (("a", "b"), ("b", "a")):
            self.map.set_link(one, other, 1_000, 0.0, True, 0.0)
        self.stores = [StateStore(name, 1) for name in "ab"]
        self.found = [ChildNameConflicts(store, self.map) for store in self.stores]
        for store, other in zip(self.stores, "ba", strict=True):
            store.link_up(other, 0)

    def wait(self, first: dict[str, int], second: dict[str, int], now_us: int) -> list[str]:
        """What people are told then."""
        said = []
        for _ in range(8):
            for found, store, linked in zip(self.found, self.stores, (first, second), strict=True):
                store.drop(CHILD, "kid")
                for child, incarnation in linked.items():
                    store.put(CHILD, child, msgspec.msgpack.encode(incarnation))
                said += found.update(linked, now_us)
            for store in self.stores:
                store.advance(now_us)
            for store, other in zip(self.stores, reversed(self.stores), strict=True):
                for _, message in store.sends:
                    other.receive(store.name, message, now_us)
                store.sends.clear()
            now_us += 500_000
        return said


def test_namesakes_at_two_parents_are_told_once() -> None:
    pair = Pair()
    assert pair.wait({"kid": EARLY}, {"kid": LATE}, 0) == [], "perhaps it was just started again"
    said = pair.wait({"kid": EARLY}, {"kid": LATE}, SURE_US + 4_000_000)
    assert said == [
        f"another secondary node 'kid' is linked with {other!r}: one of the two must be renamed"
        for other in "ba"
    ]
    assert list(pair.found[0].problems) == ["kid"]
    assert pair.found[0].is_taken("kid")
    assert not pair.wait({"kid": EARLY}, {}, 2 * SURE_US)
    assert pair.found[0].problems == {}
    assert not pair.found[0].is_taken("kid")


def test_one_child_with_two_parents_is_no_namesake_of_itself() -> None:
    pair = Pair()
    for turn in range(4):
        assert pair.wait({"kid": EARLY}, {"kid": EARLY}, turn * SURE_US) == []
    assert pair.found[0].problems == pair.found[1].problems == {}


def test_a_child_with_the_name_of_a_backbone_node_is_told() -> None:
    pair = Pair()
    pair.wait({"b": EARLY}, {}, 0)
    (said,) = pair.wait({"b": EARLY}, {}, SURE_US + 4_000_000)
    assert said.startswith("a backbone node is called 'b'")
