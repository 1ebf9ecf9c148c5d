"""Definitions of properties come to the other tier, whatever is lost."""

from __future__ import annotations

from random import Random

import msgspec

from accord.core.overlay.signalling import TemplateMessage
from accord.core.overlay.tier_links import TierLink, TierLinks
from accord.core.quality.property_sync import RETRANSMIT_US, SERVICE, PropertyDelta, PropertySync

LINK = TierLink(1_000, is_active=True)


class Pair:
    """Two ends; of what they say a share is lost."""

    def __init__(self, loss: float) -> None:
        self.random = Random(1)  # noqa: S311
        self.loss = loss
        self.now_us = 0
        self.flying: list[tuple[str, str, TemplateMessage]] = []
        self.links = {"a": TierLinks(), "x": TierLinks()}
        self.ends = {name: PropertySync(links) for name, links in self.links.items()}
        self.told: dict[str, list[str]] = {"a": [], "x": []}
        for name, end in self.ends.items():
            end.on_definition = lambda _, text, name=name: self.told[name].append(text)  # type: ignore[misc]
            self.links[name].send = lambda to, said, name=name: self.send(name, to, said)  # type: ignore[misc]

    def send(self, one: str, to: str, said: TemplateMessage) -> None:
        if self.random.random() >= self.loss:
            self.flying.append((one, to, said))

    def link(self) -> None:
        self.links["a"].set("x", LINK)
        self.links["x"].set("a", LINK)

    def unlink(self) -> None:
        self.links["a"].drop("x")
        self.links["x"].drop("a")

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now_us += RETRANSMIT_US
            for end in self.ends.values():
                if end.next_due_us() <= self.now_us:
                    end.advance(self.now_us)
            while self.flying:
                one, to, said = self.flying.pop(0)
                self.links[to].on_message(one, said, self.now_us)


def test_all_are_heard_and_then_there_is_silence() -> None:
    pair = Pair(0.4)
    for number in range(100):
        pair.ends["a"].announce(f"p{number}", f"text {number}")
    pair.ends["x"].announce("mine", "of the child")
    pair.link()
    pair.run(60)
    assert sorted(set(pair.told["x"])) == sorted(f"text {number}" for number in range(100))
    assert set(pair.told["a"]) == {"of the child"}
    assert all(
        end.next_due_us() > pair.now_us + 1_000 * RETRANSMIT_US for end in pair.ends.values()
    )
    pair.ends["a"].announce("late", "one more")
    pair.ends["a"].announce("late", "the same name again")
    pair.run(20)
    assert pair.told["x"][-1] == "one more"


def test_who_begins_anew_is_told_everything() -> None:
    pair = Pair(0.0)
    pair.ends["a"].announce("p", "text")
    pair.link()
    pair.run(2)
    pair.unlink()
    pair.run(1)
    pair.link()
    pair.run(2)
    assert pair.told["x"] == ["text", "text"]
    pair.unlink()  # nobody looks meanwhile
    pair.link()
    pair.run(2)
    assert pair.told["x"] == ["text"] * 3


def test_long_ones_come_too() -> None:
    pair = Pair(0.0)
    long = "ä" * 60_000
    for number in range(40):
        pair.ends["a"].announce(f"p{number}", f"{number} {long}")
    pair.link()
    pair.run(30)
    assert len(pair.told["x"]) == 40


def test_what_makes_no_sense_is_passed_over() -> None:
    pair = Pair(0.0)
    pair.link()
    pair.links["a"].on_message("x", TemplateMessage(SERVICE, "", b"\xc1"), 0)
    pair.run(1)
    assert pair.told == {"a": [], "x": []}


def test_places_that_there_are_not_are_not_heard_of() -> None:
    pair = Pair(0)
    pair.link()
    for first in (-1, (1 << 64) - 1):
        body = msgspec.msgpack.encode(PropertyDelta(first, ("odd",)))
        pair.links["a"].on_message("x", TemplateMessage(SERVICE, "", body), 0)
    assert (pair.told["a"], pair.flying) == ([], [])
