"""What no child says to its parent, and events that its parent fails over."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from tests.core.tiers.test_pairs import OPTIONS, Port, event

from accord.core.overlay.interests import Interest
from accord.core.overlay.signalling import TransitEvent
from accord.core.tiers import parent as parents
from accord.core.tiers.messages import (
    MAX_ASKED,
    MAX_CHANGES,
    MAX_OFFERED,
    MAX_RANGES,
    ChannelLookup,
    ChannelLookupReply,
    ChildHeartbeat,
    FromChild,
    FromParent,
    InterestDelta,
    InventoryReply,
    ParentHeartbeat,
    UpstreamEvent,
)
from accord.core.tiers.parent import Parent
from accord.core.tiers.sliding_windows import WINDOW


def a_parent(port: Port) -> Parent:
    parent = Parent(1, OPTIONS, port)
    parent.link_up("x", 1)
    parent.receive("x", ChildHeartbeat(1, 1, True), 1)
    return parent


def needs(count: int) -> InterestDelta:
    return InterestDelta(
        1, 0, count, tuple((str(each), Interest(f"room/{each}")) for each in range(count))
    )


@pytest.mark.parametrize(
    "message",
    [
        ChildHeartbeat(1, 1, True, missing=((1, 1_024),) * (MAX_RANGES + 1)),
        needs(MAX_CHANGES + 1),
        InterestDelta(
            1, 0, 5, tuple((str(each), Interest("a", "x" * 16_384)) for each in range(5))
        ),
        ChannelLookup(("a",) * (MAX_ASKED + 1)),
        InventoryReply(1, 1, 0, tuple(range(MAX_OFFERED + 1))),
    ],
    ids=lambda each: type(each).__name__,
)
def test_more_than_a_child_says_at_once_is_nothing(message: FromChild) -> None:
    port = Port()
    parent = a_parent(port)
    parent.sends.clear()
    parent.receive("x", message, 2)
    parent.advance(2)
    assert not parent.sends
    assert not port.needs


def test_as_much_as_a_child_says_is_heard() -> None:
    port = Port()
    parent = a_parent(port)
    parent.sends.clear()
    parent.receive("x", needs(MAX_CHANGES), 2)
    assert len(port.needs) == MAX_CHANGES
    parent.receive("x", ChildHeartbeat(1, 1, True, missing=((1, 2),) * MAX_RANGES), 2)
    assert [type(each) for _, each in parent.sends] == [ParentHeartbeat, ParentHeartbeat]


class FailingPort(Port):
    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:
        if event.event == 2:
            raise KeyError(event.event)
        return super().publish_event(event, is_echoed=is_echoed)


def test_an_event_that_its_parent_fails_over_is_tried_once() -> None:
    port = FailingPort()
    parent = a_parent(port)
    for number in (1, 3, 4):
        parent.receive("x", UpstreamEvent(1, number, event(number)), 2)
    with pytest.raises(KeyError):
        parent.receive("x", UpstreamEvent(1, 2, event(2)), 2)
    parent.retry_upstream(3)
    assert [number for _, number, _ in port.taken] == [1, 3, 4]
    parent.advance(1_000_000)
    (serve,) = [each for _, each in parent.sends if isinstance(each, ParentHeartbeat)][-1:]
    assert (serve.through, serve.confirmed) == (4, 4), "the child need not keep it"
    parent.check_invariants()


def said(parent: Parent, kind: type[FromParent]) -> list[Any]:
    return [each for _, each in parent.sends if isinstance(each, kind)]


def large(number: int) -> UpstreamEvent:
    return UpstreamEvent(1, number, replace(event(number), payload=bytes(1 << 20)))


def test_so_much_waits_behind_a_gap_at_most() -> None:
    port = Port()
    parent = a_parent(port)
    for number in range(2, 41):
        parent.receive("x", large(number), 2)
        parent.check_invariants()
    waiting = parent._children["x"].up
    assert waiting.bytes == 4 * OPTIONS.up_bytes == 16 << 20
    parent.receive("x", large(1), 3)
    assert [number for _, number, _ in port.taken] == list(range(1, 18))
    parent.receive("x", ChildHeartbeat(1, 1, True, top=40), 4)
    parent.sends.clear()
    parent.advance(4 + OPTIONS.again_us)
    assert ((18, 40),) in [each.missing for each in said(parent, ParentHeartbeat)], (
        "it is to come again"
    )
    for number in range(18, 41):
        parent.receive("x", large(number), 5)
    assert len(port.taken) == 40


def test_a_child_is_answered_once_at_a_time() -> None:
    parent = a_parent(Port())
    for _ in range(100):
        parent.receive("x", ChannelLookup((), ""), 2)
    parent.receive("y", ChannelLookup((), ""), 2)
    assert parent.next_due_us() == 0
    parent.advance(2)
    parent.advance(3)
    assert [child for child, each in parent.sends if isinstance(each, ChannelLookupReply)] == ["x"]
    parent.receive("x", ChannelLookup((), "a"), 4)
    parent.advance(4)
    assert [each.after for each in said(parent, ChannelLookupReply)] == ["", "a"]


def test_so_many_events_are_unsettled_at_most() -> None:
    port = Port()
    parent = a_parent(port)
    port.pending = [1]
    most = 2 * OPTIONS.up_events + WINDOW
    for number in range(1, most + 100):
        parent.receive("x", UpstreamEvent(1, number, event(number)), 2)
        parent.check_invariants()
    assert len(port.taken) == most, "whatever is behind the first waits"
    port.pending = []
    parent.advance(2 + 100 * OPTIONS.soon_us)
    parent.retry_upstream(2 + 100 * OPTIONS.soon_us)
    assert len(port.taken) == most + 99


def test_a_child_may_not_choose_its_parents_all_the_time() -> None:
    parent = a_parent(Port())
    for number in range(50):
        parent.put("x", event(number), 2, is_in_order=True)
    keeping = parent._children["x"].keeping
    for turn in (2, 3):
        parent.receive("x", ChildHeartbeat(1, turn, True), 2)
    assert keeping.parent_epoch == 3, "where little is kept that costs nothing"
    options = replace(OPTIONS, kept_events=2_000)
    parent = Parent(1, options, Port())
    parent.link_up("x", 1)
    parent.receive("x", ChildHeartbeat(1, 1, True), 1)
    for number in range(1_000):
        parent.put("x", event(number), 2, is_in_order=True)
    keeping = parent._children["x"].keeping
    for turn, now_us in ((2, 30_000), (3, 40_000), (4, 49_999), (5, 50_000), (6, 50_001)):
        parent.receive("x", ChildHeartbeat(1, turn, True), now_us)
    assert keeping.parent_epoch == 5
    parent.receive("x", ChildHeartbeat(1, 6, True), 80_000)
    assert keeping.parent_epoch == 6


def test_needs_take_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parents, "_NEEDS_BYTES", 10_000)
    port = Port()
    parent = a_parent(port)
    parent.receive("x", needs(100), 2)
    parent.check_invariants()
    assert 15 < len(port.needs) < 25
    parent.receive("x", InterestDelta(1, 100, 101, (("0", None), ("new", Interest("new")))), 2)
    assert ("x", "new") in port.needs
    parent.receive("x", InterestDelta(1, 101, 102, (("new", Interest("room/" * 3 + "x")),)), 2)
    parent.check_invariants()
    assert parent._children["x"].wants("room/room/room/x")
    assert not parent._children["x"].wants("new")


def test_a_need_less_is_not_compared_with_all_that_waits() -> None:
    """By how many calls that takes: a child may have thousands of both."""
    count = 100
    port = Port()
    parent = a_parent(port)
    parent.receive("x", ChildHeartbeat(1, 2, False), 2)
    parent.receive("x", needs(count), 2)
    for number in range(count):
        parent.put("x", event(number, f"room/{number}"), 2, is_in_order=False)
    calls = 0

    def called(_frame: FrameType, kind: str, _argument: object) -> None:
        nonlocal calls
        calls += kind == "call"

    sys.setprofile(called)
    try:
        parent.receive("x", InterestDelta(1, count, count + 1, (("7", None),)), 3)
    finally:
        sys.setprofile(None)
    assert parent.status()[0].waiting == count - 1
    assert calls < 20 * count


def test_long_conditions_are_read_one_by_one() -> None:
    port = Port()
    parent = a_parent(port)
    long = [(str(each), Interest(f"room/{each}", "a" * 4_096)) for each in range(3)]
    short = [(f"s{each}", Interest(f"hall/{each}", "a = 1")) for each in range(50)]
    parent.receive("x", InterestDelta(1, 0, 53, (*long, *short)), 2)
    assert (len(port.needs), said(parent, ParentHeartbeat)[-1].version) == (1, 0)
    again = InterestDelta(1, 0, 1, (("other", Interest("other")),))
    parent.receive("x", again, 2)
    for count in (2, 3, 53):
        assert parent.next_due_us() == 0
        parent.advance(3)
        assert len(port.needs) == count
    assert said(parent, ParentHeartbeat)[-1].version == 53
    assert parent.next_due_us() != 0


def test_children_that_are_away_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parents, "MAX_CHILDREN", 3)
    port = Port()
    parent = Parent(1, OPTIONS, port)
    for at_us, child in enumerate("abcdef", 1):
        parent.link_up(child, at_us)
        parent.receive(child, ChildHeartbeat(1, 1, True), at_us)
        if child in "bc":
            parent.link_down(child, at_us)
    assert sorted(port.children) == ["a", "d", "e"], "f has to wait"
    parent.link_down("d", 10)
    parent.receive("f", ChildHeartbeat(1, 1, True), 11)
    assert sorted(port.children) == ["a", "e", "f"]
    parent.receive("a", ChildHeartbeat(2, 1, True), 12)
    assert sorted(port.children) == ["a", "e", "f"], "another life takes no more room"
