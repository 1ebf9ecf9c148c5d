from __future__ import annotations

import itertools
from random import Random

import msgspec
import pytest

from accord.core.quality import delta_sync
from accord.core.quality.costs import TableCost
from accord.core.quality.delta_sync import (
    MAX_ENTRIES,
    MAX_RETRANSMIT_US,
    RETRANSMIT_US,
    DeltaReceiver,
    DeltaSender,
)
from accord.core.quality.messages import (
    MAX_CHANGES,
    RESET,
    ForwardedProfile,
    NegotiationAck,
    NegotiationChange,
    NegotiationDelta,
    NegotiationEntry,
    PropertyInterest,
)
from accord.core.quality.profiles import Capability

MS = 1_000


def want(number: int) -> PropertyInterest:
    return PropertyInterest("c", ("rate",), number, ("n",))


class Pair:
    """One who says and one who hears; messages are passed by hand."""

    def __init__(self, limit: int = MAX_ENTRIES) -> None:
        self.saying = DeltaSender(1, limit)
        self.hearing = DeltaReceiver()
        self.now_us = 0
        self.saying.link_up("n", 0)

    def say(self, key: str, number: int | None) -> None:
        self.saying.announce((key,), None if number is None else want(number), self.now_us)

    def take(self) -> list[NegotiationDelta]:
        due_us = self.saying.next_due_us()
        if due_us > self.now_us + MAX_RETRANSMIT_US:
            return []
        self.now_us = max(self.now_us, due_us)
        return [news for _, news in self.saying.take(self.now_us)]

    def pass_on(self, news: NegotiationDelta) -> None:
        self.hearing.on_delta(news)
        self.saying.on_ack("n", self.hearing.ack(), self.now_us)

    def listen_anew(self) -> None:
        """As after a failure that the other end does not notice."""
        self.hearing = DeltaReceiver((1, self.hearing.session[1] + 1), self.now_us)

    def greet(self) -> list[NegotiationAck]:
        greeting = self.hearing.repeat_session_open(self.now_us)
        return [] if greeting is None else [greeting]

    def settle(self) -> None:
        for _ in range(100):
            if not self.hearing.is_established:
                self.now_us = max(self.now_us, self.hearing.next_due_us())
            for greeting in self.greet():
                self.saying.on_ack("n", greeting, self.now_us)
            for news in self.take():
                self.pass_on(news)
        self.check()

    def check(self) -> None:
        self.saying.check_invariants()
        self.hearing.check_invariants()
        assert self.hearing.entries() == self.saying.entries()
        assert self.hearing.is_established
        assert self.saying.next_due_us() > self.now_us


def test_changes_within_a_moment_go_together() -> None:
    pair = Pair()
    pair.settle()
    pair.say("a", 1)
    pair.say("b", 2)
    pair.say("a", 3)
    (news,) = pair.take()
    assert [(change.key, change.value) for change in news.changes] == [
        (("b",), want(2)),
        (("a",), want(3)),
    ]
    pair.pass_on(news)
    pair.check()


def test_the_same_again_says_nothing() -> None:
    pair = Pair()
    pair.say("a", 1)
    pair.settle()
    version = pair.saying.version
    pair.say("a", 1)
    pair.say("b", None)
    assert pair.saying.version == version


def test_what_is_not_heard_is_said_again_after_longer_and_longer_times() -> None:
    pair = Pair()
    pair.say("a", 1)
    times = []
    for _ in range(7):
        assert len(pair.take()) == 1
        times.append(pair.now_us)
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert waits[0] == RETRANSMIT_US
    assert waits == sorted(waits)
    assert waits[-1] == MAX_RETRANSMIT_US
    pair.settle()


def test_what_was_lost_is_said_again_also_while_more_is_said_all_the_time() -> None:
    pair = Pair()
    pair.settle()
    pair.say("a", 1)
    assert len(pair.take()) == 1, "and is lost"
    began_us = pair.now_us
    while "a" not in {key for key, *_ in pair.hearing.entries()}:
        pair.now_us += RETRANSMIT_US // 4
        pair.say("b", pair.now_us)
        for _, news in pair.saying.take(pair.now_us):
            pair.pass_on(news)
        assert pair.now_us < began_us + 2 * RETRANSMIT_US


def test_much_goes_in_several_messages_one_after_the_other() -> None:
    pair = Pair()
    for number in range(2 * MAX_CHANGES + 5):
        pair.say(str(number), 1)
    sizes = []
    for _ in range(5):
        for news in pair.take():
            sizes.append(len(news.changes))
            pair.pass_on(news)
    assert sizes == [MAX_CHANGES, MAX_CHANGES, 5]
    pair.check()


def test_old_and_doubled_messages_change_nothing() -> None:
    pair = Pair()
    pair.say("a", 1)
    (first,) = pair.take()
    pair.pass_on(first)
    pair.say("a", None)
    pair.settle()
    pair.pass_on(first)
    pair.check()
    assert pair.hearing.entries() == {}


def test_who_forgot_gets_everything_also_what_was_taken_back() -> None:
    pair = Pair()
    pair.say("a", 1)
    pair.say("b", 2)
    pair.settle()
    stale = DeltaReceiver()
    stale.on_delta(NegotiationDelta(1, 0, 1, ()))
    assert stale.is_established
    pair.say("a", None)
    pair.settle()
    assert pair.saying._log.floor == 3, "that it was taken back is forgotten"
    pair.hearing = stale  # at version 1, before that
    pair.say("c", 3)
    pair.settle()
    assert set(pair.hearing.entries()) == {("b",), ("c",)}


def test_a_new_incarnation_begins_anew() -> None:
    pair = Pair()
    pair.say("a", 1)
    pair.settle()
    old = NegotiationDelta(1, 0, 99, ())
    pair.saying = DeltaSender(2)
    pair.saying.link_up("n", pair.now_us)
    pair.say("b", 2)
    pair.settle()
    assert set(pair.hearing.entries()) == {("b",)}
    assert pair.hearing.on_delta(old) == []
    pair.saying.on_ack("n", NegotiationAck(1, 50), pair.now_us)
    pair.saying.on_ack("n", NegotiationAck(2, 50), pair.now_us)
    pair.settle()


def test_who_listens_anew_is_told_all_although_nothing_is_new() -> None:
    pair = Pair()
    pair.say("a", 1)
    pair.settle()
    late = pair.hearing.ack()
    pair.listen_anew()
    assert pair.take() == [], "nothing was noticed there"
    pair.settle()
    assert set(pair.hearing.entries()) == {("a",)}
    pair.listen_anew()
    (greeting,) = pair.greet()
    pair.saying.on_ack("n", greeting, pair.now_us)
    pair.saying.on_ack("n", late, pair.now_us)  # of a session that is over
    pair.settle()


def test_who_listens_says_so_until_it_is_spoken_to() -> None:
    pair = Pair()
    pair.settle()
    pair.listen_anew()
    times = []
    for _ in range(7):
        pair.now_us = pair.hearing.next_due_us()
        assert pair.greet() == [NegotiationAck(0, 0, pair.hearing.session)]
        assert pair.greet() == []
        times.append(pair.now_us)
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert (waits[0], waits[-1]) == (RETRANSMIT_US, MAX_RETRANSMIT_US)
    pair.hearing.on_delta(NegotiationDelta(1, 0, 9, (), (1, 0)))  # meant for the session before
    assert not pair.hearing.is_established
    assert pair.hearing.version == 0
    pair.settle()
    assert pair.hearing.next_due_us() > 2**61


def test_who_heard_all_before_its_session_was_known_is_spoken_to_nevertheless() -> None:
    pair = Pair()
    pair.listen_anew()
    pair.say("a", 1)
    pair.greet()  # is lost
    (news,) = pair.take()
    pair.pass_on(news)
    assert set(pair.hearing.entries()) == {("a",)}
    pair.settle()
    assert pair.hearing.next_due_us() > 2**61


def test_there_is_an_end_to_what_nobody_understands() -> None:
    """A listener that stays with another incarnation is told no faster for saying so."""
    pair = Pair()
    pair.say("a", 1)
    (news,) = pair.take()
    for _ in range(10):
        pair.saying.on_ack("n", NegotiationAck(7, 3, pair.hearing.session), pair.now_us)
        assert pair.saying.take(pair.now_us) == []
    pair.pass_on(news)
    pair.check()


def test_large_costs_go_in_several_messages() -> None:
    points = tuple((float(at), 1.0) for at in range(256))
    wide = tuple(Capability(f"p{n}", 0.0, 1.0, 0.0, TableCost(points)) for n in range(32))
    saying, hearing = DeltaSender(1), DeltaReceiver()
    saying.link_up("n", 0)
    for number in range(10):
        said = ForwardedProfile("c", ("rate",), str(number), ("n",), wide)
        saying.announce((str(number),), said, 0)
    messages = now_us = 0
    while len(hearing.entries()) < 10:
        now_us = max(now_us, saying.next_due_us())
        for _, news in saying.take(now_us):
            assert len(msgspec.msgpack.encode(news)) < 400_000
            hearing.on_delta(news)
            saying.on_ack("n", hearing.ack(), now_us)
            messages += 1
    assert messages == 10


def test_bounds() -> None:
    saying = DeltaSender(1, limit=2)
    hearing = DeltaReceiver(limit=1)
    saying.link_up("n", 0)
    for key in "abc":
        saying.announce((key,), want(1), 0)
    assert (len(saying.entries()), saying.refused) == (2, 1)
    for _, news in saying.take(10 * MS):
        hearing.on_delta(news)
    assert (len(hearing.entries()), hearing.refused) == (1, 1)
    saying.check_invariants()
    hearing.check_invariants()


def test_what_was_taken_back_is_remembered_only_so_long_for_who_does_not_hear() -> None:
    saying, hearing = DeltaSender(1, limit=4), DeltaReceiver()
    saying.link_up("n", 0)
    saying.announce(("old",), want(1), 0)
    ((_, first),) = saying.take(10 * MS)
    hearing.on_delta(first)
    saying.announce(("old",), None, 10 * MS)
    for number in range(100):
        saying.announce((str(number),), want(1), 10 * MS)
        if number < 99:
            saying.announce((str(number),), None, 10 * MS)
        saying.check_invariants()
    saying.on_ack("n", hearing.ack(), 20 * MS)
    told = []
    for _ in range(3):
        for _, news in saying.take(20 * MS):
            told.append((news.base, len(news.changes)))
            hearing.on_delta(news)
            saying.on_ack("n", hearing.ack(), 20 * MS)
    assert told == [(RESET, 0), (0, 1)]
    assert hearing.entries() == {("99",): want(1)}


def test_who_begins_is_told_all_in_several_messages_whatever_is_forgotten() -> None:
    pair = Pair()
    for number in range(3 * MAX_CHANGES):
        pair.say(str(number), 1)
    pair.settle()
    pair.say("0", None)
    pair.settle()
    pair.listen_anew()
    pair.settle()


def test_who_noticed_nothing_does_not_keep_what_was_taken_back_meanwhile() -> None:
    pair = Pair()
    pair.listen_anew()
    for number in range(3 * MAX_CHANGES):
        pair.say(str(number), 1)
    pair.settle()
    pair.saying.link_down("n")
    pair.say("0", None)
    pair.saying.link_up("n", pair.now_us)
    pair.settle()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_heard_in_many_messages_becomes_what_is_said(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_sync, "MAX_CHANGES", 2)
    random = Random(seed)  # noqa: S311
    pair = Pair(limit=12)
    pair.listen_anew()
    for _ in range(300):
        for _ in range(random.randrange(3)):
            pair.say(random.choice("abcdefghijklmnop"), random.choice((None, 1, 2)))
        chance = random.random()
        if chance < 0.03:
            pair.listen_anew()
        elif chance < 0.06:
            pair.saying.link_down("n")
        elif chance < 0.1:
            pair.saying.link_up("n", pair.now_us)
        pair.now_us += random.randrange(100 * MS)
        messages: list[NegotiationDelta | NegotiationAck] = [*pair.greet()]
        messages += [news for _, news in pair.saying.take(pair.now_us)]
        for message in messages:
            if random.random() < 0.3:
                continue
            if isinstance(message, NegotiationDelta):
                pair.pass_on(message)
            else:
                pair.saying.on_ack("n", message, pair.now_us)
        pair.saying.check_invariants()
    pair.saying.link_up("n", pair.now_us)
    pair.settle()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_heard_becomes_what_is_said(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    pair = Pair()
    flying: list[NegotiationDelta | NegotiationAck] = []
    history: list[dict[tuple[str, ...], NegotiationEntry]] = [{}]
    for _ in range(300):
        if random.random() < 0.5:
            pair.say(random.choice("abcdef"), random.choice((None, 1, 2)))
            history.append(dict(pair.saying.entries()))
        if random.random() < 0.02:
            pair.listen_anew()
        if random.random() < 0.02:
            pair.saying.link_up("n", pair.now_us)  # the other end may have noticed nothing
        pair.now_us += random.randrange(100 * MS)
        flying += pair.greet()
        flying += [news for _, news in pair.saying.take(pair.now_us)]
        while flying and random.random() < 0.6:
            message = flying.pop(random.randrange(len(flying)))
            if random.random() < 0.3:
                continue
            if random.random() < 0.2:
                flying.append(message)
            if isinstance(message, NegotiationDelta):
                pair.hearing.on_delta(message)
                flying.append(pair.hearing.ack())
                assert pair.hearing.entries() in history, "as it was at some time, whole"
            else:
                pair.saying.on_ack("n", message, pair.now_us)
        pair.saying.check_invariants()
    pair.settle()


def test_a_neighbour_says_so_much_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_sync, "MAX_PEER_BYTES", 3_000)
    hearing = DeltaReceiver()

    def hear(version: int, key: str, size: int) -> None:
        value = PropertyInterest("c" * size, ("rate",), 1, ("b",)) if size else None
        hearing.on_delta(
            NegotiationDelta(1, version - 1, version, (NegotiationChange(version, (key,), value),))
        )
        hearing.check_invariants()

    hear(1, "a", 1_000)
    hear(2, "b", 1_000)
    hear(3, "c", 1_000)
    assert (list(hearing.entries()), hearing.refused) == ([("a",), ("b",)], 1)
    hear(4, "b", 100)
    hear(5, "c", 1_000)
    assert len(hearing.entries()) == 3
    for version, key in enumerate("abc", 6):
        hear(version, key, 0)
    assert not hearing.entries()
