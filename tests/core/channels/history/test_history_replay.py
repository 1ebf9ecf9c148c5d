"""The past of several nodes for one subscription: merged by time, then what came live."""

from __future__ import annotations

import pytest

from accord.core.channels.history import history_replay as module
from accord.core.channels.history.history_replay import HistoryReplay, ReplayBudget
from accord.core.channels.history.messages import (
    CutReply,
    HistoryEvent,
    HistoryPage,
    HistorySelector,
)
from accord.core.channels.history.peer_replay import ASKING, AWAY_US, KNOWN_US, LIVE
from accord.core.channels.history.peer_watermarks import SETTLED_US, PeerWatermarks

NEEDED = (1, 5)


class World:
    """A recall at node `me` and two others, whose answers come when a test says."""

    def __init__(self, names: str = "ab") -> None:
        self.now_us = 0
        self.peers = {name: PeerWatermarks(name) for name in names}
        self.recall = HistoryReplay(HistorySelector("chat/#"), "me", ReplayBudget())
        self.recall.needed = NEEDED
        for peer in self.peers.values():
            peer.look(True, 1, 0)
            self.recall.add(peer, 0)

    def step(self, us: int = 0) -> None:
        self.now_us += us
        self.recall.step(self.peers, self.now_us)
        self.recall.check_invariants()

    def cut(self, name: str, offset: int, number: int) -> None:
        self.step()
        peer = self.peers[name]
        round_ = peer.question(self.now_us, self.now_us)
        assert round_
        peer.answered(CutReply(round_, 1, offset, number, NEEDED), self.now_us)
        self.step()

    def page(self, name: str, *events: tuple[int, int]) -> None:
        """All that is to be read, as numbers and times."""
        source = self.recall.sources[name]
        assert source.wants_page(self.now_us)
        source.page_asked(1, self.now_us)
        found = tuple(HistoryEvent(number, ms, "chat", "bob", 1, b"", b"") for number, ms in events)
        source.take_page(HistoryPage(1, found), self.now_us)
        self.recall.check_invariants()

    def take(self) -> list[int]:
        found = []
        while (handed := self.recall.next(self.now_us)) is not None:
            found.append(handed.event.number)
        return found

    def live(self, name: str, number: int) -> bool:
        return self.recall.on_live_event(name, number, f"{name}{number}", 10, self.now_us)

    def go_live(self) -> list[str]:
        """As quickly as that can be, without anything new."""
        self.step(2 * KNOWN_US)
        for name in self.peers:
            source = self.recall.sources[name]
            if source.phase == ASKING:
                self.cut(name, source.start, source.number)
        assert self.recall.buffered() is not None
        items: list[str] = self.recall.go_live(self.now_us)
        return items


def test_events_of_several_nodes_come_by_time() -> None:
    world = World()
    world.cut("a", 2, 2)
    world.cut("b", 2, 20)
    world.page("a", (1, 10), (2, 30))
    assert world.take() == []  # b may have older ones
    world.page("b", (10, 20), (20, 40))
    assert world.take() == [1, 10, 2, 20]
    assert world.go_live() == []
    assert world.live("a", 3)
    assert not world.live("a", 2)  # a late copy of what was read


def test_what_comes_live_waits_and_what_was_read_does_not_come_again() -> None:
    world = World("a")
    world.cut("a", 1, 1)
    world.page("a", (1, 10))
    assert not world.live("a", 2)  # not waited for yet: it will be read
    assert world.take() == [1]
    world.step(KNOWN_US)
    assert not world.live("a", 3)  # before the cut, or behind it?
    world.cut("a", 3, 3)
    assert not world.live("a", 4)
    world.page("a", (2, 20), (3, 30))
    assert world.take() == [2, 3]
    assert world.recall.buffered() == (2, 20)
    assert world.recall.go_live(world.now_us) == ["a4"]


def test_more_than_may_wait_is_read_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    world = World("a")
    world.cut("a", 0, 0)
    world.step(KNOWN_US)
    world.cut("a", 0, 0)
    assert world.recall.buffered() == (0, 0)
    for number in (1, 2, 3):
        assert not world.live("a", number)
    assert world.recall.buffered() is None
    assert world.recall.sources["a"].phase == ASKING
    world.step(KNOWN_US)
    world.cut("a", 3, 3)
    world.page("a", (1, 1), (2, 2), (3, 3))
    assert world.take() == [1, 2, 3]
    assert world.recall.go_live(world.now_us) == []
    assert world.live("a", 4)


def test_a_node_that_is_away_is_not_waited_for_and_told_of_once() -> None:
    world = World()
    world.peers["b"].look(False, 1, 0)
    world.cut("a", 1, 1)
    world.page("a", (1, 10))
    assert world.take() == []
    world.step(AWAY_US)
    world.step()
    (notice,) = world.recall.notices
    assert (notice.node, notice.why) == ("b", "can't be reached")
    assert world.take() == [1]
    world.step(KNOWN_US)
    world.cut("a", 1, 1)
    assert world.recall.go_live(world.now_us) == []
    assert world.recall.missing() == ["b"]
    assert world.live("a", 2)
    # When it is back its part follows, what came live of it meanwhile left out.
    assert world.live("b", 7)
    assert world.peers["b"].look(True, 2, world.now_us)
    world.recall.lose(world.peers["b"], {}, world.now_us)
    world.step()
    assert world.recall.missing() == []
    world.cut("b", 2, 7)
    world.page("b", (6, 5), (7, 6))
    assert world.take() == [6]


def test_when_all_is_safe_it_is_calm_until_something_may_be_lost() -> None:
    world = World("a")
    world.cut("a", 1, 1)
    world.page("a", (1, 10))
    assert world.take() == [1]
    world.go_live()
    assert list(world.recall.sources) == ["a"]
    peer = world.peers["a"]
    for _ in range(4):
        peer.is_mark_wanted = True
        world.step(SETTLED_US)
        world.cut("a", 1, 1)
    assert world.recall.is_caught_up
    assert world.live("a", 2)
    peer.arrived(2)
    assert peer.look(True, 2, world.now_us)
    world.recall.lose(peer, dict(peer.seen), world.now_us)
    assert list(world.recall.sources) == ["a"]
    world.step()
    world.cut("a", 3, 3)
    world.page("a", (2, 20), (3, 30))
    assert world.take() == [3]
    assert world.recall.sources["a"].phase != LIVE


def test_what_waits_is_given_back_in_the_end() -> None:
    world = World("a")
    world.cut("a", 0, 0)
    world.step(KNOWN_US)
    world.cut("a", 0, 0)
    world.live("a", 1)
    assert world.recall._budget.bytes == 10
    world.recall.end()
    assert world.recall._budget.bytes == 0


def test_an_event_of_a_secondary_node_counts_once_whoever_kept_it() -> None:
    world = World()
    copies = {"a": (1, 10, 7), "b": (20, 40, 7)}  # of one event; its number at x is 7
    for name, (number, ms, original) in copies.items():
        world.cut(name, 2, number)
        source = world.recall.sources[name]
        source.page_asked(1, world.now_us)
        copy = HistoryEvent(number, ms, "chat", "cy", 1, b"", b"", "x", original)
        source.take_page(HistoryPage(1, (copy,)), world.now_us)
    one, other = world.recall.next(world.now_us), world.recall.next(world.now_us)
    assert one is not None
    assert other is not None
    assert [(each.node, each.is_duplicate) for each in (one, other)] == [("a", False), ("b", True)]
    assert other.after is not None  # its page is over all the same
    assert world.recall.handed == 1
    assert world.go_live() == []
    live = world.recall.on_live_event
    assert not live("b", 21, "x7", 10, world.now_us, original=("x", 7))
    assert live("b", 22, "x8", 10, world.now_us, original=("x", 8))
    assert not live("a", 30, "x8", 10, world.now_us, original=("x", 8))
    assert live("a", 31, "other", 10, world.now_us)
