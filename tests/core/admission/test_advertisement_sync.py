"""Advertisements of a child come to its parents, whatever is lost, doubled or late."""

from __future__ import annotations

from random import Random

import pytest

from accord.core.admission.advertisement_sync import (
    MAX_ADVERTISEMENTS,
    MAX_TOMBSTONES,
    RETRANSMIT_US,
    AdvertisementAck,
    AdvertisementDelta,
    AdvertisementReceiver,
    AdvertisementRecord,
    AdvertisementSender,
)
from accord.core.overlay.tier_links import TierLink, TierLinks

LINK = TierLink(1_000, is_active=True)


def advert(rate_hz: float) -> AdvertisementRecord:
    return AdvertisementRecord("c", "TRUE", rate_hz)


class Child:
    def __init__(self, incarnation: int, random: Random, loss: float = 0.0) -> None:
        self.incarnation = incarnation
        self.now_us = 0
        self.links = TierLinks()
        self.sent: list[tuple[str, AdvertisementDelta]] = []
        self.posting = AdvertisementSender(
            incarnation, self.links, lambda *post: self.sent.append(post)
        )
        self._random = random
        self._loss = loss

    def run(self, boards: dict[str, AdvertisementReceiver], rounds: int) -> None:
        for _ in range(rounds):
            self.now_us += RETRANSMIT_US
            if self.posting.next_due_us() <= self.now_us:
                self.posting.advance(self.now_us)
            self.posting.check_invariants()
            while self.sent:
                at = self._random.randrange(len(self.sent))
                parent, post = self.sent[at]
                if self._random.random() >= self._loss / 2:  # or it comes once more, later
                    del self.sent[at]
                if self._random.random() >= self._loss:
                    self._pass_on(parent, boards[parent], post)

    def _pass_on(self, parent: str, board: AdvertisementReceiver, post: AdvertisementDelta) -> None:
        if post.incarnation > board.incarnation:
            board.reset(post.incarnation)
        if post.incarnation == board.incarnation:
            board.apply(post)
        if self._random.random() >= self._loss:
            posted = AdvertisementAck(board.incarnation, board.session, board.version)
            self.posting.on_ack(parent, posted, self.now_us)


@pytest.mark.parametrize("seed", range(20))
def test_parents_know_what_is_advertised_in_the_end(seed: int) -> None:
    random = Random(f"posting {seed}")  # noqa: S311
    child = Child(1, random, random.choice((0.0, 0.3)))
    boards = {"a": AdvertisementReceiver(1), "b": AdvertisementReceiver(1)}
    child.links.set("a", LINK)
    truth: dict[tuple[str, str], AdvertisementRecord] = {}
    for step in range(300):
        which = ("p", str(random.randrange(100)))
        if random.random() < 0.6:
            truth[which] = advert(step)
            child.posting.put(*which, truth[which])
        else:
            truth.pop(which, None)
            child.posting.put(*which, None)
        chance = random.random()
        if chance < 0.3:
            child.run(boards, 1)
        elif chance < 0.34:
            child.links.set("b", LINK)
        elif chance < 0.38:
            child.links.drop(random.choice("ab"))
        elif chance < 0.4:  # a parent that was started anew
            name = random.choice("ab")
            boards[name] = AdvertisementReceiver(0)
            child.links.drop(name)
    for name in boards:
        child.links.set(name, LINK)
    child.run(boards, 60)
    assert [board.adverts for board in boards.values()] == [truth, truth]
    assert child.posting.next_due_us() > child.now_us + 1_000 * RETRANSMIT_US


def test_a_new_life_of_the_child_has_what_it_says() -> None:
    random = Random(1)  # noqa: S311
    boards = {"a": AdvertisementReceiver(1)}
    before, after = Child(1, random), Child(2, random)
    for name in ("one", "two"):
        before.posting.put("p", name, advert(1))
    before.links.set("a", LINK)
    before.run(boards, 3)
    assert len(boards["a"].adverts) == 2
    after.posting.put("p", "two", advert(2))
    after.links.set("a", LINK)
    after.run(boards, 3)
    assert boards["a"].adverts == {("p", "two"): advert(2)}


def test_what_is_gone_is_not_remembered_for_ever_for_a_parent_that_does_not_answer() -> None:
    child = Child(1, Random(1))  # noqa: S311
    boards = {"a": AdvertisementReceiver(1)}
    for name in ("old", "left"):
        child.posting.put("p", name, advert(1))
    child.links.set("a", LINK)
    child.run(boards, 3)
    assert len(boards["a"].adverts) == 2
    child.posting.put("p", "old", None)
    for number in range(MAX_TOMBSTONES + 100):
        child.posting.put("p", str(number), advert(1))
        child.posting.put("p", str(number), None)
    assert len(child.posting._log._changes) == MAX_TOMBSTONES + 1
    child.run(boards, 3)
    assert boards["a"].adverts == {("p", "left"): advert(1)}


def test_a_parent_that_comes_late_is_told_all_in_several_messages() -> None:
    child = Child(1, Random(1))  # noqa: S311
    for number in range(200):
        child.posting.put("p", str(number), advert(1))
    child.posting.put("p", "0", None)
    boards = {"a": AdvertisementReceiver(1)}
    child.links.set("a", LINK)
    child.run(boards, 6)
    assert len(boards["a"].adverts) == 199
    assert child.posting.next_due_us() > child.now_us + 1_000 * RETRANSMIT_US


def test_a_child_has_only_so_much_room() -> None:
    board = AdvertisementReceiver(1)
    board.adverts = {("p", str(number)): advert(1) for number in range(MAX_ADVERTISEMENTS)}
    board.session = board.version = 1
    more = AdvertisementDelta(1, 1, 1, 2, 2, (("p", "more", advert(1)), ("p", "0", advert(2))))
    assert board.apply(more) == [(("p", "0"), advert(2))]


def test_a_message_has_so_many_changes_at_most() -> None:
    board = AdvertisementReceiver(1)
    changes = tuple(("p", str(number), advert(1)) for number in range(65))
    assert board.apply(AdvertisementDelta(1, 1, 0, 65, 65, changes)) == []
    assert len(board.apply(AdvertisementDelta(1, 1, 0, 64, 64, changes[:64]))) == 64
