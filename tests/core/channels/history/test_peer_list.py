"""What secondary nodes are told of who there is: also who was away for a moment."""

from __future__ import annotations

from collections.abc import Iterable

from accord.core.channels.history.history_client import HistoryClient, PeerState
from accord.core.channels.history.history_protocol import ASKED_US, PeerList
from accord.core.channels.history.messages import HistoryRequest, HistorySelector, Stamp

S = 1_000_000


class Fake:
    """What a test says is around."""

    def __init__(self) -> None:
        self.nodes: dict[str, PeerState] = {}
        self.changes = 0
        self.asked: list[tuple[str, HistoryRequest]] = []

    def put(self, node: str, standing: PeerState) -> None:
        self.nodes[node] = standing
        self.changes += 1

    def version(self) -> int:
        return self.changes

    def names(self) -> Iterable[str]:
        return self.nodes

    def standing(self, node: str) -> PeerState:
        return self.nodes.get(node, PeerState())

    def noted(self) -> Stamp | None:
        return (1, 1)

    def needed(self, noted: Stamp) -> Stamp | None:
        return noted

    def come_us(self, now_us: int) -> int:
        return now_us

    def ask(self, node: str, question: HistoryRequest, now_us: int) -> None:  # noqa: ARG002
        self.asked.append((node, question))


HERE = PeerState(is_here=True, incarnation=5)
AWAY = PeerState(is_here=False, incarnation=5)


def test_a_node_that_was_away_for_a_moment_is_another_than_before() -> None:
    fake = Fake()
    fake.put("n", HERE)
    roster = PeerList(fake)
    roster.ask(S)
    assert roster.nodes == (("n", HERE._replace(since=S)),)
    before = roster.version
    roster.look_if_due(2 * S)
    assert roster.version == before  # nothing has changed
    fake.put("n", AWAY)
    roster.look_if_due(2 * S + 1)
    fake.put("n", HERE)
    roster.look_if_due(2 * S + 2)
    assert roster.nodes == (("n", HERE._replace(since=2 * S + 2)),)
    assert roster.version > before
    fake.put("n", HERE._replace(incarnation=6))
    roster.look_if_due(3 * S)
    assert roster.nodes[0][1].since == 3 * S


def test_nobody_looks_while_nobody_asks_and_then_all_are_new() -> None:
    fake = Fake()
    fake.put("n", HERE)
    roster = PeerList(fake)
    assert roster.next_due_us() is None
    roster.ask(S)
    assert roster.next_due_us() is not None
    later_us = S + ASKED_US
    fake.put("n", AWAY)
    fake.put("n", HERE)
    roster.look_if_due(later_us)
    assert roster.nodes[0][1].since == S  # it did not look
    roster.ask(later_us)
    assert roster.nodes[0][1].since == later_us


def test_what_comes_right_after_a_loss_was_seen_goes_to_who_has_a_past_first() -> None:
    """Else it would be handed over at once, and read again from the journal."""
    fake = Fake()
    fake.put("n", HERE)
    asker = HistoryClient("me", 1, fake)
    recall = asker.start_replay(HistorySelector("chat"), lambda: (1, 1), 0)
    asker.on_live_event("n", 5, 1, 0)
    recall.sources.clear()
    recall.lived, recall.is_caught_up = {"n": True}, True  # it was live for long
    asker.active.clear()
    asker.has_woken = False
    assert not asker.on_live_event("n", 5, 2, S)
    fake.put("n", HERE._replace(since=S))
    asker.sample_if_due(S)
    assert recall in asker.active
    assert asker.on_live_event("n", 5, 3, S)  # as long as nobody has noticed
    assert recall.sources["n"].had == {1: True, 2: True}
