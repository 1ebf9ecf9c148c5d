"""Questions and answers between nodes: what is bounded, and what makes no sense."""

from __future__ import annotations

import msgspec
import pytest

from accord.core.channels.channels import Channels
from accord.core.channels.control_unicast import UnicastMessage
from accord.core.channels.history.history_client import FORGET_US, LOOK_US, MAX_GONE
from accord.core.channels.history.history_protocol import HistoryProtocol
from accord.core.channels.history.messages import (
    BUSY,
    MAX_READING,
    MAX_ROWS,
    SERVICE,
    CutRequest,
    HistoryPage,
    HistorySelector,
    MakeCut,
    PageInProgress,
    PageRequest,
    PageUnavailable,
    ReadPage,
    bodies,
    encode,
    problem_with_question,
)
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent

ASKED = PageRequest(1, HistorySelector("chat/#"), 0, 10, "", 100, 1_000)


class Alone:
    """A node that hears what a test says another one said."""

    def __init__(self) -> None:
        overlay = Overlay("me", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
        self.exchange = Channels(overlay).serve(
            SERVICE, lambda context: HistoryProtocol(context, overlay.store, overlay.interests)
        )
        self.posted: list[object] = []
        self._number = 0
        self.exchange.letters.send = self._post  # type: ignore[method-assign]

    def _post(self, to: str, channel: str, body: bytes, now_us: int) -> None:  # noqa: ARG002
        self.posted.append(bodies.decode(body))

    def hear(self, body: object) -> None:
        self._number += 1
        letter = UnicastMessage("other", 1, self._number, "me", encode(body))
        self.exchange.on_message("other", "", encode(letter), 0)
        self.exchange.check_invariants()


def test_pages_are_read_a_few_at_a_time_and_none_twice() -> None:
    alone = Alone()
    most = MAX_READING // 2
    for number in range(most):
        alone.hear(PageRequest(number, HistorySelector("chat"), 0, 10, "", 100, 1_000))
    assert len(alone.exchange.orders) == most
    alone.hear(PageRequest(3, HistorySelector("chat"), 0, 10, "", 100, 1_000))
    alone.hear(PageRequest(99, HistorySelector("chat"), 0, 10, "", 100, 1_000))
    assert alone.posted == [PageInProgress(3), PageUnavailable(99, BUSY)]
    assert (alone.exchange.answers.refused, len(alone.exchange.orders)) == (1, most)
    order = alone.exchange.orders[0]
    assert isinstance(order, ReadPage)
    alone.exchange.on_page_failed(order, "gone", 0)
    alone.hear(PageRequest(99, HistorySelector("chat"), 0, 10, "", 100, 1_000))
    assert len(alone.exchange.orders) == most + 1


def test_who_has_many_pages_read_leaves_some_to_others() -> None:
    alone = Alone()
    for child, most in (("", 16), ("x", 8), ("y", 4)):
        before = len(alone.exchange.orders)
        for number in range(MAX_READING):
            alone.hear(PageRequest(number, HistorySelector("chat"), 0, 10, "", 100, 1_000, child))
        assert len(alone.exchange.orders) == before + most


def test_a_cut_is_ordered_from_who_drives() -> None:
    alone = Alone()
    alone.hear(CutRequest(5))
    assert alone.exchange.orders == [MakeCut("other", 5)]
    alone.exchange.on_cut(MakeCut("other", 5), 7, 8, 0)
    (made,) = alone.posted
    assert (made.round, made.offset, made.number, made.incarnation) == (5, 7, 8, 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "asked",
    [
        PageRequest(1, HistorySelector("chat/#/x"), 0, 10, "", 100, 1_000),
        PageRequest(1, HistorySelector("chat", "x" * 100_000), 0, 10, "", 100, 1_000),
        PageRequest(1, HistorySelector("chat"), 11, 10, "", 100, 1_000),
        PageRequest(1, HistorySelector("chat"), -1, 10, "", 100, 1_000),
        PageRequest(1, HistorySelector("chat"), 0, 10, "", MAX_ROWS + 1, 1_000),
        PageRequest(1, HistorySelector("chat"), 0, 10, "", 100, 0),
        PageRequest(1, HistorySelector("chat"), 0, 10, "c" * 20_000, 100, 1_000),
    ],
)
def test_questions_that_make_no_sense_are_refused(asked: PageRequest) -> None:
    assert not problem_with_question(ASKED)
    alone = Alone()
    alone.hear(asked)
    assert alone.exchange.orders == []
    assert alone.exchange.answers.senseless == 1
    assert isinstance(alone.posted[0], PageUnavailable)


def test_nonsense_is_counted() -> None:
    alone = Alone()
    alone.exchange.on_message("other", "", b"\xc1", 0)
    alone.exchange.on_message("other", "", encode(UnicastMessage("other", 1, 1, "me", b"\xc1")), 0)
    alone.exchange.on_page_event(TransitEvent("other", 1, 1, (), SERVICE, b"\xc1"), 0)
    assert alone.exchange.dropped == 3
    page = encode(HistoryPage(7, ()))
    alone.exchange.on_page_event(TransitEvent("other", 1, 1, (), SERVICE, page), 0)  # nobody asked
    assert alone.exchange.dropped == 3


def test_places_outlive_a_node() -> None:
    alone = Alone()
    alone.exchange.restore({"other": (40, [5, 6])})
    assert alone.exchange.watermarks() == {"other": (40, [5, 6])}
    recall = alone.exchange.resume(HistorySelector("chat"), lambda: (1, 1), None, 0)
    assert recall.sources["other"].start == 40
    assert recall.sources["other"].had == {5: True, 6: True}
    fresh = alone.exchange.start_replay(HistorySelector("chat"), lambda: (1, 1), 0)
    assert "other" not in fresh.sources  # nobody has heard of it yet
    alone.exchange.on_live_event("other", 1, 7, 0)
    assert fresh.sources["other"].start == 0
    alone.exchange.end(recall)
    alone.exchange.end(fresh)
    assert not any(alone.exchange.retained_state().values())


def room() -> tuple[int, int]:
    return 1, 1


def test_with_the_last_subscription_nodes_are_forgotten() -> None:
    exchange = Alone().exchange
    recall = exchange.start_replay(HistorySelector("chat"), room, 0)
    exchange.on_live_event("other", 1, 7, 0)
    assert exchange.watermarks() == {"other": (0, [7])}
    exchange.end(recall)
    assert (exchange.watermarks(), exchange.peers) == ({}, {})
    again = exchange.start_replay(HistorySelector("chat"), room, 0)
    exchange.on_live_event("other", 1, 8, 0)
    assert again.sources["other"].start == 0
    exchange.check_invariants()


def test_nodes_that_are_gone_for_good_are_forgotten() -> None:
    exchange = Alone().exchange
    exchange.restore({"owing": (40, [5]), "done": (50, [6])})
    recall = exchange.resume(HistorySelector("chat"), room, None, 0)
    del recall.sources["done"]  # it had become a live one there
    recall.lived["done"] = True
    exchange.advance(FORGET_US - 1)
    assert sorted(exchange.watermarks()) == ["done", "owing"]
    exchange.advance(FORGET_US + LOOK_US)
    assert exchange.watermarks() == {"owing": (40, [5])}  # which may still come back with its past
    assert "done" not in recall.lived
    exchange.check_invariants()


def test_so_many_nodes_that_are_gone_are_remembered() -> None:
    exchange = Alone().exchange
    recall = exchange.start_replay(HistorySelector("chat"), room, 0)
    for number in range(MAX_GONE + 100):
        exchange.on_live_event(f"n{number}", 1, 7, number)
        exchange.advance((number + 1) * LOOK_US)
    gone = [name for name in exchange.peers if name != "me"]
    assert gone == [f"n{number}" for number in range(100, MAX_GONE + 100)]
    assert sorted(recall.sources) == sorted(exchange.peers)
    exchange.check_invariants()


def test_what_makes_no_sense_is_not_relayed() -> None:
    alone = Alone()
    answers: list[object] = []
    alone.exchange.on_child_reply = lambda *each: answers.append(each[:3])
    odd = msgspec.structs.replace(ASKED, cursor=20_000_000 * "c")
    alone.exchange.relay("x", "me", odd, 0)
    assert answers == [("x", "me", PageUnavailable(1, problem_with_question(odd)))]
    assert not alone.exchange.orders
    assert not alone.posted
