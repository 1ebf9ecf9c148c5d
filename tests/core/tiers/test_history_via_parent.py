"""What a secondary node knows of others' journals through its parents, and what parents relay."""

from __future__ import annotations

from tests.core.tiers.test_pairs import Port

from accord.core.channels.history.history_client import FORGET_US, PeerState
from accord.core.channels.history.history_protocol import Nodes
from accord.core.channels.history.messages import (
    CutReply,
    CutRequest,
    HistoryEvent,
    HistoryPage,
    HistoryRequest,
    HistorySelector,
    PageInProgress,
    PageRequest,
    Stamp,
)
from accord.core.overlay.signalling import TransitEvent
from accord.core.tiers.child import Child
from accord.core.tiers.history_via_parent import (
    AGAIN_US,
    MAX_BYTES,
    SHED_US,
    HistoryRelay,
    HistoryViaParent,
)
from accord.core.tiers.messages import (
    ChildHeartbeat,
    DownstreamEvent,
    InterestLog,
    ParentHeartbeat,
    PeerListUpdate,
    RelayedHistoryReply,
    RelayedHistoryRequest,
    TierOptions,
)
from accord.core.tiers.parent import Parent

S = 1_000_000
HERE = PeerState(is_here=True, incarnation=5, since=7)
ASKED = PageRequest(4, HistorySelector("chat"), 0, 10, "", 100, 1_000)


def serve(
    version: int = 1,
    heard: Stamp = (3, 4),
    at_us: int = 0,
    *,
    behind_us: int = 0,
    shed: int = 0,
) -> ParentHeartbeat:
    return ParentHeartbeat(
        1, 1, 1, 1, at_us, version=version, record_version=heard, behind_us=behind_us, shed=shed
    )


class Asking:
    """A secondary node with one subscription that was live for long."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, HistoryRequest]] = []
        self.log = InterestLog(1)
        self.log.interests.add("chat", ("", ""), None)
        self.recalling = HistoryViaParent("x", 1, self.log, lambda *each: self.asked.append(each))
        self.asker = self.recalling.client
        self.recall = self.asker.start_replay(HistorySelector("chat"), lambda: (1, 1), 0)
        self.recalling.on_peer_list(PeerListUpdate(1, 9, (("n", HERE),)))
        self.asker.look(0)
        self.recall.sources.clear()
        self.recall.lived, self.recall.is_caught_up = {"n": True}, True
        self.asker.active.clear()

    def has_past(self, now_us: int) -> bool:
        self.recalling.advance(now_us)
        self.recalling.check_invariants()
        return self.recall in self.asker.active


def test_what_is_needed_counts_when_the_parent_has_told_it_to_all() -> None:
    asking = Asking()
    recalling = asking.recalling
    assert recalling.noted() is None  # not even the parent was told
    asking.log.update(0)
    noted = recalling.noted()
    assert noted == (0, 1)
    recalling.served(serve(version=0))
    assert recalling.needed(noted) is None  # it did not know yet
    recalling.served(serve(heard=(0, 0)))
    assert recalling.needed(noted) is None  # it has not told others
    recalling.served(serve())
    assert recalling.needed(noted) == (3, 4)
    recalling.start_parent_epoch(S)
    assert recalling.needed(noted) is None


def test_another_parent_means_that_all_nodes_were_away() -> None:
    asking = Asking()
    assert not asking.has_past(S)
    asking.recalling.start_parent_epoch(S)
    assert not asking.asker.peers["n"].is_here
    assert not asking.has_past(S)  # nobody can be asked
    assert asking.recalling.wanted() == 0  # it wants to know who there are
    asking.recalling.on_peer_list(PeerListUpdate(2, 9, (("n", HERE),)))
    assert asking.has_past(S)
    assert asking.asked[-1][0] == "n"
    assert isinstance(asking.asked[-1][1], CutRequest)


def test_no_node_is_forgotten_for_want_of_a_parent() -> None:
    asking = Asking()
    asking.recalling.start_parent_epoch(S)
    for _ in range(2):
        asking.recalling.advance(3 * FORGET_US)
        assert "n" in asking.asker.peers
    asking.recalling.on_peer_list(PeerListUpdate(2, 9, (("other", HERE),)))  # it is gone indeed
    asking.recalling.advance(4 * FORGET_US)
    asking.recalling.advance(5 * FORGET_US)
    assert "n" not in asking.asker.peers


def test_what_a_parent_has_shed_is_looked_for_in_the_journals() -> None:
    asking = Asking()
    asking.recalling.served(serve(shed=3))
    assert not asking.has_past(S)  # that was before
    asking.recalling.served(serve(shed=4))
    assert asking.has_past(S)
    asked = len(asking.asked)
    asking.recalling.served(serve(shed=5))
    asking.recalling.advance(S + 1)
    assert len(asking.asked) == asked  # not all the time
    asking.recalling.advance(S + SHED_US)
    assert len(asking.asked) > asked


def test_a_mark_is_safe_when_what_came_to_the_parent_has_come_here() -> None:
    asking = Asking()
    asking.recalling.served(serve(at_us=90 * S, behind_us=60 * S))
    assert asking.recalling.come_us(100 * S) == 30 * S
    asking.recalling.served(serve(at_us=0, behind_us=0))  # of which nobody knows when it was said
    assert asking.recalling.come_us(100 * S) == 30 * S
    asking.recalling.served(serve(at_us=91 * S))
    assert asking.recalling.come_us(100 * S) == 91 * S


def test_who_needs_no_roster_does_not_ask_for_one() -> None:
    asking = Asking()
    assert asking.recalling.wanted() == 9
    asking.asker.end(asking.recall)
    assert asking.recalling.wanted() == -1
    assert asking.recalling.next_due_us() is None


class Past:
    def __init__(self) -> None:
        self.relayed: list[tuple[str, str, HistoryRequest]] = []

    def relay(self, child: str, node: str, question: HistoryRequest, now_us: int) -> None:  # noqa: ARG002
        self.relayed.append((child, node, question))

    def interest_version(self) -> Stamp:
        return (3, 4)

    def peer_list(self, now_us: int) -> tuple[int, Nodes]:  # noqa: ARG002
        return 8, (("n", HERE),)


def page(number: int, size: int = 10) -> RelayedHistoryReply:
    return RelayedHistoryReply(
        "n", HistoryPage(number, (HistoryEvent(1, 1, "chat", "p", 1, b"", b"x" * size),))
    )


def test_a_parent_relays_questions_and_tells_who_there_are() -> None:
    parent = Parent(1, TierOptions(), Port())
    past = parent.history = Past()
    parent.link_up("x", 0)
    parent.receive("x", ChildHeartbeat(5, 1, is_active=True, at_us=3, roster=0), S)
    (_, answer), (_, roster) = parent.sends
    assert isinstance(answer, ParentHeartbeat)
    assert answer.record_version == (3, 4)
    assert roster == PeerListUpdate(1, 8, (("n", HERE),))
    parent.sends.clear()
    parent.receive("x", RelayedHistoryRequest(5, "n", ASKED), S)
    assert past.relayed == [("x", "n", ASKED)]
    parent.on_history_reply("x", RelayedHistoryReply("n", CutReply(1, 2, 3, 4, (5, 6))))
    assert len(parent.sends) == 1
    parent.on_history_reply("nobody", page(4))  # it has left meanwhile
    parent.check_invariants()


def test_pages_wait_behind_events_and_are_not_read_again_meanwhile() -> None:
    parent = Parent(1, TierOptions(), Port())
    past = parent.history = Past()
    parent.link_up("x", 0)
    parent.receive("x", ChildHeartbeat(5, 1, is_active=True), S)
    parent.on_history_reply("x", page(4))
    parent.put("x", TransitEvent("s", 1, 0, (), "chat", b"x", event=1), S, is_in_order=True)
    parent.sends.clear()
    parent.receive("x", RelayedHistoryRequest(5, "n", ASKED), S)
    assert parent.sends == [("x", RelayedHistoryReply("n", PageInProgress(4)))]
    assert past.relayed == []
    (first,) = parent.take("x", 1_000, S)
    assert isinstance(first, DownstreamEvent)
    assert parent.take("x", 1_000, S) == [page(4)]
    assert parent.take("x", 1_000, S) == []


def test_a_child_is_told_once_who_there_are_and_again_if_that_got_lost() -> None:
    relaying, past = HistoryRelay(), Past()
    attend = ChildHeartbeat(5, 1, is_active=True, roster=0)
    assert relaying.roster(past, attend, S) is not None
    assert relaying.roster(past, attend, S + 1) is None
    assert relaying.roster(past, attend, S + AGAIN_US) is not None
    assert relaying.roster(past, ChildHeartbeat(5, 1, is_active=True, roster=8), 9 * S) is None
    assert (
        relaying.roster(past, ChildHeartbeat(5, 2, is_active=True, roster=0), S + AGAIN_US)
        is not None
    )


def test_no_more_pages_wait_than_there_is_room_for() -> None:
    relaying = HistoryRelay()
    for number in range(3):
        relaying.put(page(number, 2 * MAX_BYTES))
        relaying.check_invariants()
    assert relaying.take() == [page(0, 2 * MAX_BYTES)]
    assert relaying.take() == []


def test_a_child_asks_its_active_parent_as_soon_as_somebody_wants_to_know() -> None:
    child = Child("x", 1_000, TierOptions())
    child.link_up("a", 0, 1)
    child.advance(1)
    child.receive("a", ParentHeartbeat(1, 1, 1_000, child.selector.parent_epoch), 2)
    child.advance(3)
    child.sends.clear()
    child.history.client.start_replay(HistorySelector("chat"), lambda: (1, 1), 4)
    child.advance(4)
    attends = [each for _, each in child.sends if isinstance(each, ChildHeartbeat)]
    assert [each.roster for each in attends] == [0]
    child.check_invariants()
