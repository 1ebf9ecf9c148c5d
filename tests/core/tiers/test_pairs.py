"""A child and its parents, talking to each other over links that do what a test says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from accord.core.overlay.change_log import DeltaLimits
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Interest
from accord.core.overlay.signalling import TransitEvent
from accord.core.router.rights import FEEDBACK
from accord.core.tiers import messages
from accord.core.tiers.child import NO_ROOM, Child
from accord.core.tiers.messages import (
    ChannelLookup,
    ChannelLookupReply,
    ChildHeartbeat,
    DownstreamEvent,
    InterestDelta,
    TemplateTraits,
    TierOptions,
    UpstreamEvent,
)
from accord.core.tiers.parent import Parent

OPTIONS = TierOptions(up_events=8, kept_events=64, return_us=2_000_000, behind_us=1_000_000)
MS = 1_000
TRAITS = {
    "routed": TemplateTraits(),
    "reliable": TemplateTraits(can_be_full=True),
    "local": TemplateTraits(),
    "total_order": TemplateTraits(is_ordered=True, can_be_full=True),
}


def event(number: int, channel: str = "room", source: str = "s") -> TransitEvent:
    return TransitEvent(source, 1, 0, (), channel, b"x", event=number)


class Port:
    """What a parent's node would do; `busy` channels have no room."""

    def __init__(self) -> None:
        self.children: list[str] = []
        self.needs: dict[tuple[str, str], Interest] = {}
        self.taken: list[tuple[str, int, bool]] = []
        self.busy = False
        self.pending: list[int] = []
        self.template = "reliable"
        self.patience: dict[str, int] = {}

    def on_joined(self, child: str, incarnation: int) -> None:  # noqa: ARG002
        self.children.append(child)

    def on_left(self, child: str) -> None:
        self.children.remove(child)

    def on_interest(self, child: str, key: str, need: Interest | None) -> None:
        if need is None:
            del self.needs[child, key]
        else:
            self.needs[child, key] = need

    def publish_event(self, event: TransitEvent, *, is_echoed: bool) -> int | None:
        if self.busy:
            return None
        self.taken.append((event.child, event.event, is_echoed))
        return event.event

    def unconfirmed(self, channel: str) -> list[int]:
        return self.pending if channel == "room" else []

    def child_timeout_us(self, channel: str) -> int:
        return self.patience.get(channel, 0)

    def look_up(self, ask: ChannelLookup) -> ChannelLookupReply:
        page = ((ChannelDefinition("room", template=self.template), "a"),)
        return ChannelLookupReply(
            self.directory_version(), TRAITS, (), page, ask.after, is_last=True
        )

    def directory_version(self) -> int:
        return hash(self.template) & 0xFFFF


class World:
    """One child and the parents a and b, of which it likes a better; `cut` links carry nothing."""

    def __init__(self) -> None:
        self.now_us = 1
        self.child = Child("x", 1_000, OPTIONS)
        self.ports = {"a": Port(), "b": Port()}
        self.parents = {name: self._new(name, 1) for name in "ab"}
        self.cut: dict[str, bool] = {}
        self.got: list[int] = []
        self.ups: list[UpstreamEvent] = []
        self.rate = 10_000  # bytes that a link carries at a time, of events
        self.needs_are_lost = False

    def _new(self, name: str, incarnation: int) -> Parent:
        return Parent(incarnation, OPTIONS, self.ports[name])

    def link(self, name: str) -> None:
        self.child.link_up(name, "ab".index(name), self.now_us)
        self.parents[name].link_up("x", self.now_us)

    def unlink(self, name: str) -> None:
        self.child.link_down(name, self.now_us)
        self.parents[name].link_down("x", self.now_us)

    def restart(self, name: str) -> None:
        """Without a word: only what it says afterwards is another life's."""
        self.ports[name].needs.clear()
        self.ports[name].children.clear()
        self.parents[name] = self._new(name, 2)
        self.parents[name].link_up("x", self.now_us)

    def put(self, number: int, *names: str) -> None:
        for name in names or "ab":
            self.parents[name].put("x", event(number), self.now_us, is_in_order=True)

    def run(self, for_us: int = 500 * MS) -> list[int]:
        """What the child hands over meanwhile."""
        self.got = []
        for _ in range(for_us // (10 * MS)):
            self.now_us += 10 * MS
            self.child.advance(self.now_us)
            for parent in self.parents.values():
                parent.retry_upstream(self.now_us)
                parent.advance(self.now_us)
            for _ in range(4):
                self._exchange()
        return self.got

    def _exchange(self) -> None:
        child, now_us = self.child, self.now_us
        sends, child.sends = child.sends, []
        for name, message in sends:
            if name not in self.cut and not (
                self.needs_are_lost and isinstance(message, InterestDelta)
            ):
                self.parents[name].receive("x", message, now_us)
        for name, parent in self.parents.items():
            for _, answer in parent.sends if name not in self.cut else ():
                child.receive(name, answer, now_us)
            parent.sends.clear()
            if name not in self.cut:
                for down in parent.take("x", self.rate, now_us):
                    child.receive(name, down, now_us)
                for up in child.take(name, self.rate, now_us):
                    self.ups.append(up)
                    parent.receive("x", up, now_us)
            parent.check_invariants()
        child.check_invariants()
        self.got += [each.event for each in child.deliveries]
        child.deliveries.clear()

    def roles(self) -> tuple[str, str]:
        return self.child.selector.active, self.child.selector.standby


def linked(*, needs: bool = True) -> World:
    world = World()
    if needs:
        world.child.add_interest("room", ("", ""), None)
    world.link("a")
    world.link("b")
    world.run()
    return world


def test_both_parents_know_what_the_child_needs() -> None:
    world = linked()
    assert world.roles() == ("a", "b")
    for port in world.ports.values():
        assert port.children == ["x"]
        assert list(port.needs.values()) == [Interest("room")]
    world.child.remove_interest("room", ("", ""))
    world.run()
    assert all(not port.needs for port in world.ports.values())


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a message about needs, and to remember of those that are gone."""
    monkeypatch.setattr(messages, "_LIMITS", DeltaLimits(changes=2, bytes=1_000, max_tombstones=4))


@pytest.mark.usefixtures("little")
def test_a_second_parent_is_told_many_needs_also_where_one_was_taken_back_before() -> None:
    world = World()
    for channel in ("room", "one", "two", "three", "four"):
        world.child.add_interest(channel, ("", ""), None)
    world.link("a")
    world.run()
    world.child.remove_interest("four", ("", ""))
    world.run()
    world.link("b")
    world.run()
    assert [len(port.needs) for port in world.ports.values()] == [4, 4]
    world.unlink("a")
    world.put(1, "b")
    assert world.run() == [1]


@pytest.mark.usefixtures("little")
def test_a_parent_that_may_know_what_is_gone_is_told_everything_anew() -> None:
    world = linked()
    world.cut["b"] = True
    world.child.remove_interest("room", ("", ""))
    for number in range(10):
        world.child.add_interest(str(number), ("", ""), None)
        world.run(50 * MS)
        world.child.remove_interest(str(number), ("", ""))
        world.run(50 * MS)
    world.child.add_interest("other", ("", ""), None)
    world.run()
    assert list(world.ports["b"].needs.values()) == [Interest("room")]
    del world.cut["b"]
    world.run(8_000 * MS)
    assert list(world.ports["b"].needs.values()) == [Interest("other")]


def test_events_come_once_and_nobody_keeps_them() -> None:
    world = linked()
    for number in (1, 2, 3):
        world.put(number)
    assert world.run() == [1, 2, 3]
    assert [status.waiting for each in world.parents.values() for status in each.status()] == [0, 0]


def test_the_standby_goes_on_when_the_link_fails() -> None:
    world = linked()
    world.put(1)
    world.run()
    world.cut["a"] = True  # the active one has it, and can't say so any more
    world.put(2)
    world.unlink("a")
    world.put(3, "b")
    assert world.run() == [2, 3]
    assert world.roles() == ("b", "")


def test_the_standby_goes_on_when_the_active_one_is_silent() -> None:
    world = linked()
    world.cut["a"] = True
    world.run(2_000 * MS)
    assert world.roles() == ("a", "b")
    world.run(2_000 * MS)
    assert world.roles() == ("b", "a")
    world.put(1)
    assert world.run() == [1]


def test_the_better_parent_becomes_the_active_one_again() -> None:
    world = linked()
    world.unlink("a")
    world.put(1, "b")
    assert world.run() == [1]
    world.link("a")
    world.put(2)
    assert world.run() == [2]
    assert world.roles() == ("b", "a")
    world.run(2 * 2 * OPTIONS.return_us)  # it has failed once
    assert world.roles() == ("a", "b")
    world.put(3)
    assert world.run() == [3]


def test_a_parent_that_began_anew_is_left() -> None:
    world = linked()
    world.put(1, "b")  # the active one died before it had it
    world.restart("a")
    assert world.run() == [1]
    assert world.roles() == ("b", "a")
    assert list(world.ports["a"].needs.values()) == [Interest("room")]


def test_a_parent_that_is_cut_off_itself_is_left() -> None:
    world = linked()
    world.put(1, "b")
    assert world.run(500 * MS) == []
    assert world.run(2_000 * MS) == [1]
    assert world.roles() == ("b", "a")


def test_a_child_that_leaves_is_forgotten() -> None:
    world = linked()
    world.put(1, "b")
    world.child.leave()
    world._exchange()
    assert [parent.children() for parent in world.parents.values()] == [[], []]
    assert all(not port.needs for port in world.ports.values())
    assert all(not port.children for port in world.ports.values())


def test_a_child_that_is_silent_for_long_has_left() -> None:
    world = linked()
    world.cut = {"a": True, "b": True}
    world.run(OPTIONS.lease_us + 1_000 * MS)
    assert [parent.children() for parent in world.parents.values()] == [[], []]


def test_a_child_that_was_started_again_begins_with_nothing() -> None:
    world = linked()
    world.put(1, "b")
    world.child = Child("x", 2_000, OPTIONS)
    world.child.add_interest("other", ("", ""), None)
    world.link("a")
    world.link("b")
    assert world.run() == []
    for port in world.ports.values():
        assert list(port.needs.values()) == [Interest("other")]


def test_what_is_published_is_kept_until_it_is_with_everybody() -> None:
    world = linked()
    world.ports["a"].pending = [1, 2]
    for number in (1, 2):
        world.child.publish(event(number), world.now_us)
    world.run()
    assert world.ports["a"].taken == [("x", 1, False), ("x", 2, False)]
    assert world.child.status().waiting == 2
    world.ports["a"].pending = [2]
    world.run()
    assert world.child.status().waiting == 1
    world.ports["a"].pending = []
    world.run()
    assert world.child.status().waiting == 0


def test_what_is_not_with_everybody_goes_to_the_next_parent() -> None:
    world = linked()
    world.ports["a"].pending = [2, 3]
    for number in (1, 2, 3):
        world.child.publish(event(number), world.now_us)
    world.run()
    world.unlink("a")
    world.run()
    assert world.ports["b"].taken == [("x", 2, False), ("x", 3, False)]
    originals = {up.event.event: up.event.child_number for up in world.ups}
    assert len({up.event.child_number for up in world.ups}) == 3
    assert originals[1] < originals[2] < originals[3]


def test_publishers_are_held_back_where_there_is_no_room() -> None:
    world = linked()
    world.ports["a"].busy = True
    for number in range(OPTIONS.up_events):
        assert world.child.has_room("room")
        world.child.publish(event(number + 1), world.now_us)
    assert not world.child.has_room("room")
    world.run()
    assert world.ports["a"].taken == []
    world.ports["a"].busy = False
    world.run()
    assert len(world.ports["a"].taken) == OPTIONS.up_events
    assert world.child.has_room("room")


def test_answers_go_up_like_events_while_there_is_room() -> None:
    world = linked()
    world.ports["a"].busy = True
    for number in range(OPTIONS.up_events):
        assert world.child.send_feedback(event(number + 1, FEEDBACK), world.now_us)
    assert not world.child.send_feedback(event(99, FEEDBACK), world.now_us)
    world.unlink("a")
    world.run()
    assert world.ports["b"].taken == [("x", number + 1, False) for number in range(8)]
    assert world.child.send_feedback(event(100, FEEDBACK), world.now_us)


def test_what_may_be_lost_is_where_there_is_no_room() -> None:
    world = linked()
    world.ports["a"].busy = True
    for number in range(OPTIONS.up_events + 2):
        assert world.child.has_room("elsewhere")
        world.child.publish(event(number + 1, "elsewhere"), world.now_us)
    assert world.child.status().lost == {NO_ROOM: 2}
    assert [each.event for each, _ in world.child.drops] == [9, 10]


def test_what_is_ordered_comes_back_before_local_clients_get_it() -> None:
    world = World()
    world.ports["a"].template = "total_order"
    world.link("a")
    world.run()
    assert world.child.bound("room", world.now_us).is_ordered
    world.child.submit(event(1), world.now_us)
    assert world.run() == []
    assert world.ports["a"].taken == [("x", 1, True)]
    (up,) = world.ups
    world.parents["a"].put("x", up.event, world.now_us, is_in_order=True)
    assert world.run() == [1]


def test_what_is_not_ordered_does_not_come_back() -> None:
    world = linked()
    world.child.publish(event(1), world.now_us)
    world.run()
    (up,) = world.ups
    world.parents["a"].put("x", up.event, world.now_us, is_in_order=True)
    assert world.run() == []


def test_an_event_waits_until_it_is_known_whether_it_is_ordered() -> None:
    world = World()
    assert world.child.bound("room", world.now_us).is_ordered
    world.child.submit(event(1), world.now_us)
    assert not world.child.has_room("room")
    assert world.run(500 * MS) == []
    world.link("a")
    assert world.run() == [1]
    assert world.ports["a"].taken == [("x", 1, False)]
    assert world.child.has_room("room")


def test_without_parents_local_clients_get_it_all_the_same() -> None:
    world = World()
    world.child.submit(event(1), world.now_us)
    assert world.run(OPTIONS.decide_us + 100 * MS) == [1]


def test_what_is_local_stays() -> None:
    world = World()
    world.ports["a"].template = "local"
    world.link("a")
    world.run()
    world.child.publish(event(1), world.now_us)
    world.run()
    assert world.ports["a"].taken == []


def test_nonsense_is_not_believed() -> None:
    world = linked()
    parent, port = world.parents["a"], world.ports["a"]
    parent.receive("x", event(1), world.now_us)
    parent.receive(
        "x",
        InterestDelta(1_000, 1, 2, (("k", Interest("a/#/b")), ("", Interest("a")))),
        world.now_us,
    )
    parent.receive("x", ChildHeartbeat(999, 99, is_active=False), world.now_us)
    assert list(port.needs.values()) == [Interest("room")]
    world.child.receive("a", event(1), world.now_us)
    world.child.receive(
        "b", DownstreamEvent(world.child.selector.parent_epoch, 1, event(7)), world.now_us
    )
    assert world.run() == []


PATIENCE_US = 5_000_000


def fill(world: World, *names: str) -> int:
    """Put events until their parents would take no more; gives how many that were."""
    count = 0
    while all(world.parents[name].can_accept("room", 0, 0, world.now_us) for name in names):
        count += 1
        world.put(count, *names)
    return count


def slow() -> World:
    world = linked()
    for port in world.ports.values():
        port.patience["room"] = PATIENCE_US
    world.rate = 0
    return world


def test_parents_take_no_more_for_a_child_that_is_full_and_go_on_with_it() -> None:
    world = slow()
    count = fill(world, "a", "b")
    assert count == OPTIONS.kept_events // 2
    assert world.parents["a"].can_accept("elsewhere", 0, 0, world.now_us)
    assert world.run() == []
    world.rate = 10_000
    assert world.run(2_000 * MS) == list(range(1, count + 1))
    assert all(each.can_accept("room", 0, 0, world.now_us) for each in world.parents.values())
    assert [each.lost for parent in world.parents.values() for each in parent.status()] == [{}, {}]


def test_who_gets_nothing_is_not_waited_for_forever_and_learns_it() -> None:
    world = slow()
    count = fill(world, "a", "b")
    world.run(PATIENCE_US + 100 * MS)
    assert world.parents["a"].can_accept("room", 0, 0, world.now_us)
    world.put(count + 1)
    assert [each.event for each, _, _ in world.parents["a"].drops] == [1, 2]
    world.rate = 10_000
    assert world.run(2_000 * MS) == list(range(3, count + 2))
    lost = {each.name: each.lost for each in world.child.status().parents}
    assert lost == {"a": 2, "b": 0}


def test_or_is_if_the_channel_says_so_until_it_is_gone() -> None:
    world = slow()
    for port in world.ports.values():
        port.patience["room"] = 1 << 62
    fill(world, "a", "b")
    world.run(OPTIONS.lease_us)
    assert not world.parents["a"].can_accept("room", 0, 0, world.now_us)
    world.cut = {"a": True, "b": True}
    world.run(OPTIONS.lease_us + 1_000 * MS)
    assert world.parents["a"].can_accept("room", 0, 0, world.now_us)


def test_a_parent_that_lost_the_child_to_another_holds_nobody_back() -> None:
    world = slow()
    fill(world, "b")
    world.unlink("b")
    assert world.parents["b"].can_accept("room", 0, 0, world.now_us)
    world.link("b")
    world.run()
    assert not world.parents["b"].can_accept("room", 0, 0, world.now_us)
    world.cut["b"] = True
    world.run(OPTIONS.dead_us)
    assert world.parents["b"].can_accept("room", 0, 0, world.now_us)


def test_its_only_parent_waits_for_it() -> None:
    world = slow()
    world.unlink("b")
    world.run()
    fill(world, "a")
    world.unlink("a")
    assert not world.parents["a"].can_accept("room", 0, 0, world.now_us)


def test_the_important_goes_up_first_and_the_least_important_is_shed() -> None:
    world = linked()
    world.unlink("a")
    world.unlink("b")
    for number in range(1, OPTIONS.up_events + 1):
        world.child.publish(event(number, "elsewhere"), world.now_us)
    world.child.publish(replace(event(50, "alarm"), importance=7), world.now_us)
    world.child.publish(event(51), world.now_us)  # to a channel that loses nothing
    assert [each.event for each, _ in world.child.drops] == [1]
    world.link("a")
    world.run()
    assert [each for _, each, _ in world.ports["a"].taken] == [50, 2, 51, 3, 4, 5, 6, 7, 8]


def test_nothing_goes_up_to_a_parent_that_does_not_know_what_is_needed_here() -> None:
    world = World()
    world.link("a")
    world.child.add_interest("room", ("", ""), None)
    world.run()
    world.unlink("a")
    world.child.publish(event(1), world.now_us)
    world.needs_are_lost = True
    world.link("b")
    assert world.run() == []
    assert world.roles() == ("b", "")
    assert world.ups == [], "its own clients would not get it back from there"
    world.needs_are_lost = False
    world.run(5_000 * MS)
    assert [up.event.event for up in world.ups] == [1]
    assert [number for _, number, _ in world.ports["b"].taken] == [1]
    # What is needed besides, later on, holds nothing up.
    world.needs_are_lost = True
    world.child.add_interest("hall", ("", ""), None)
    world.child.publish(event(2), world.now_us)
    world.run()
    assert [number for _, number, _ in world.ports["b"].taken] == [1, 2]
