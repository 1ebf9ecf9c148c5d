from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.overlay.state_store import (
    DeltaRequest,
    FactMessage,
    StateDelta,
    StateDigest,
    StateOptions,
    StateRecord,
    StateStore,
    VersionVector,
)

MS = 1_000
S = 1_000_000
CODE = msgspec.msgpack.Decoder(FactMessage)


class Wires:
    """Connects stores without delay or loss; `said` has all that was said, in order."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, str], tuple[StateStore, str]] = {}
        self.stores: dict[int, StateStore] = {}
        self.said: list[tuple[str, str, FactMessage]] = []
        self.now_us = 0

    def join(self, one: StateStore, other: StateStore, now_us: int = 0) -> None:
        self.now_us = max(self.now_us, now_us)
        for here, there in ((one, other), (other, one)):
            self.stores[id(here)] = here
            self.ends[id(here), there.name] = there, here.name
            here.link_up(there.name, now_us)

    def settle(self, now_us: int) -> None:
        """Let everybody say all that is due at this time."""
        self.now_us = max(self.now_us, now_us)
        while sum(self._speak(store) for store in self.stores.values()):
            pass

    def run(self, until_us: int) -> None:
        """Let time pass from one due moment to the next."""
        self.settle(self.now_us)
        while True:
            dues = [store.next_due_us() for store in self.stores.values()]
            due_us = min((each for each in dues if each is not None), default=until_us + 1)
            if due_us > until_us:
                self.now_us = until_us
                return
            self.settle(due_us)

    def _speak(self, store: StateStore) -> bool:
        store.advance(self.now_us)
        store.check_invariants()
        sends, store.sends = store.sends, []
        for neighbour, message in sends:
            self.said.append((store.name, neighbour, message))
            there, name = self.ends[id(store), neighbour]
            there.receive(name, CODE.decode(msgspec.msgpack.encode(message)), self.now_us)
        return bool(sends)


def pair(options: StateOptions | None = None) -> tuple[Wires, StateStore, StateStore]:
    """Two neighbours that know each other."""
    wires = Wires()
    denver, orlando = StateStore("denver", 100, options), StateStore("orlando", 200, options)
    wires.join(denver, orlando)
    wires.settle(0)
    wires.said.clear()
    denver.check_invariants()
    return wires, denver, orlando


def facts(
    origin: str, base: int, version: int, *said: StateRecord, incarnation: int = 7
) -> StateDelta:
    return StateDelta(origin, incarnation, base, version, said)


# ------------------------------------------------------------------------------------- own facts


def test_what_a_node_says_is_known_at_once_at_itself() -> None:
    store = StateStore("denver", 100)
    assert store.put("link", "orlando", b"1")
    assert store.get("denver", "link", "orlando") == b"1"
    assert store.of("denver", "link") == {"orlando": b"1"}
    assert list(store.all("link")) == [("denver", "orlando", b"1")]
    assert store.origins() == ["denver"]
    store.drop("link", "orlando")
    assert store.get("denver", "link", "orlando") is None
    assert store.of("denver", "link") == {} == store.of("nowhere", "link")
    assert store.tombstones == 1


def test_the_same_again_is_no_change() -> None:
    store = StateStore("denver", 100)
    store.put("link", "orlando", b"1")
    stamp = store.version_of("denver")
    assert store.put("link", "orlando", b"1")
    store.drop("link", "nothing")
    assert store.version_of("denver") == stamp == (100, 2)


def test_a_store_needs_a_name_and_a_start() -> None:
    with pytest.raises(ValueError, match="own_name: expected 1 to 256 characters"):
        StateStore("", 1)
    with pytest.raises(ValueError, match="incarnation: expected 0 to"):
        StateStore("denver", -1)
    with pytest.raises(ValueError, match="flush_us: expected at least 1, got 0"):
        StateOptions(flush_us=0)
    store = StateStore("denver", 1)
    with pytest.raises(ValueError, match="expected another node than 'denver'"):
        store.link_up("denver", 0)
    with pytest.raises(ValueError, match="expected another node to forget than 'denver'"):
        store.expire("denver")


def test_what_there_is_no_room_for_is_refused() -> None:
    options = StateOptions(records_limit=2, value_limit=10, origin_bytes_limit=1_250)
    store = StateStore("denver", 100, options)
    assert not store.put("link", "a", b"x" * 11)
    assert not store.put("k" * 65, "a", b"x")
    assert not store.put("link", "a" * 1_025, b"x")
    assert store.put("link", "a", b"x")
    assert store.put("link", "b", b"x")
    assert not store.put("link", "c", b"x"), "a third fact"
    assert store.put("link", "b", b"y" * 10), "in place of another"
    assert store.counts.refused == 4
    store.drop("link", "a")
    store.drop("link", "b")
    assert store.put("link", "c" * 100, b"x"), "tombstones give way"
    assert store.tombstones < 2
    store.check_invariants()


def test_what_is_reserved_for_a_kind_nothing_else_takes() -> None:
    store = StateStore("denver", 100, StateOptions(origin_bytes_limit=4_400))
    store.reserve("need", 2_000)
    said = [store.put("channel", str(number), b"x") for number in range(10)]
    assert sum(said) == 4
    assert all(store.put("need", str(number), b"x") for number in range(4))
    store.check_invariants()
    for number in range(4):
        store.drop("need", str(number))
    assert not store.put("channel", "new", b"x"), "it stays reserved"
    assert all(store.put("need", f"new {number}", b"x") for number in range(4))
    store.check_invariants()


def test_tombstones_of_another_node_give_way_to_what_it_says_now() -> None:
    options = StateOptions(origin_bytes_limit=2_000)
    wires = Wires()
    one, other = StateStore("denver", 100, options), StateStore("orlando", 100, options)
    wires.join(one, other)
    for turn in range(1, 9):
        assert one.put("need", str(turn), b"x")
        assert one.put("link", str(turn), b"x")
        wires.run(turn * S)
        one.drop("need", str(turn))
        one.drop("link", str(turn))
        wires.run(turn * S + S // 2)
    one.put("need", "last", b"x")
    wires.run(12 * S)
    assert other.of("denver", "need") == {"last": b"x"}
    assert other.counts.refused == 0
    other.check_invariants()


# ------------------------------------------------------------------------------------- watching


def test_watchers_hear_of_changes_in_order_after_they_are_made() -> None:
    wires, denver, orlando = pair()
    heard: list[tuple[str, str, bytes | None]] = []

    def told(origin: str, key: str, value: bytes | None) -> None:
        assert orlando.get(origin, "link", key) == value
        heard.append((origin, key, value))

    orlando.watch("link", told)
    denver.put("link", "a", b"1")
    denver.put("need", "1", b"x")
    denver.put("link", "b", b"2")
    orlando.put("link", "c", b"3")
    wires.run(S // 10)
    denver.drop("link", "a")
    wires.run(S // 5)
    assert heard == [
        ("orlando", "c", b"3"),
        ("denver", "a", b"1"),
        ("denver", "b", b"2"),
        ("denver", "a", None),
    ]


def test_a_watcher_may_change_something_and_all_hear_of_it_in_the_same_order() -> None:
    store = StateStore("denver", 100)
    heard: list[str] = []
    others: list[str] = []

    def told(_: str, key: str, value: bytes | None) -> None:
        heard.append(key)
        if key == "a" and value is not None:
            store.put("link", "b", b"1")
            store.drop("link", "a")

    store.watch("link", told)
    store.watch("link", lambda _, key, __: others.append(key))
    store.put("link", "a", b"1")
    assert heard == others == ["a", "b", "a"]


def test_a_node_that_comes_back_is_told_of_as_the_difference() -> None:
    wires, denver, orlando = pair()
    denver.put("link", "a", b"1")
    denver.put("link", "b", b"2")
    denver.put("link", "c", b"3")
    wires.run(S // 10)
    heard: list[tuple[str, str, bytes | None]] = []
    orlando.watch("link", lambda *change: heard.append(change))
    again = StateStore("denver", 150)
    again.put("link", "a", b"1")
    again.put("link", "b", b"4")
    wires = Wires()
    wires.join(again, orlando, S)
    wires.run(S + S // 10)
    assert heard == [("denver", "c", None), ("denver", "b", b"4")]
    assert orlando.of("denver", "link") == {"a": b"1", "b": b"4"}


# ------------------------------------------------------------------------------------- spreading


def test_changes_within_a_moment_go_together_and_never_back() -> None:
    line = [StateStore(name, 1) for name in ("a", "b", "c")]
    wires = Wires()
    for one, other in pairwise(line):
        wires.join(one, other)
    wires.run(S // 2)
    wires.said.clear()
    line[0].put("link", "x", b"1")
    wires.settle(S // 2)
    for number in range(10):
        line[0].put("link", "x", str(number).encode())
        line[0].put("need", "x", str(number).encode())
    wires.run(S // 2 + 20 * MS)
    said = [(source, to, message) for source, to, message in wires.said]
    assert [(source, to) for source, to, _ in said] == [("a", "b"), ("b", "c")] * 2
    first, _, last, _ = (message for _, _, message in said)
    assert first == StateDelta("a", 1, 1, 2, (StateRecord("link", "x", b"1", 2),))
    assert last == StateDelta(
        "a", 1, 2, 22, (StateRecord("link", "x", b"9", 21), StateRecord("need", "x", b"9", 22))
    )


def test_own_changes_are_flooded_at_a_bounded_rate() -> None:
    wires, denver, orlando = pair(StateOptions(own_us=100 * MS, own_burst=5))
    for number in range(2_000):
        now_us = S + number * MS
        denver.put("link", "a", str(number).encode())
        wires.settle(now_us)
    flooded = sum(isinstance(message, StateDelta) for _, _, message in wires.said)
    assert 20 <= flooded <= 2_000 // 100 + 5 + 1
    wires.run(4 * S)
    assert orlando.get("denver", "link", "a") == b"1999"


def test_a_gap_is_asked_for() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    store.sends.clear()
    store.receive("orlando", facts("seattle", 3, 4, StateRecord("link", "a", b"1", 4)), 10)
    store.advance(10)
    assert store.sends == [("orlando", DeltaRequest("seattle", 0, 0))]
    assert store.get("seattle", "link", "a") is None
    store.receive("orlando", facts("seattle", 0, 4, StateRecord("link", "a", b"1", 4)), 20)
    assert store.get("seattle", "link", "a") == b"1"
    assert store.version_of("seattle") == (7, 4)


def test_what_is_large_is_offered_and_fetched_once() -> None:
    hub, one, two = (StateStore(name, 1) for name in ("hub", "one", "two"))
    far = StateStore("far", 1)
    wires = Wires()
    for a, b in ((hub, one), (hub, two), (one, far), (two, far)):
        wires.join(a, b)
    wires.run(S // 2)
    wires.said.clear()
    hub.put("need", "x", b"x" * 20_000)
    wires.run(S // 2 + 100 * MS)
    assert far.get("hub", "need", "x") == b"x" * 20_000
    to_far = [message for _, to, message in wires.said if to == "far"]
    assert [type(message) for message in to_far] == [VersionVector, VersionVector, StateDelta]


def test_lost_news_is_repaired_after_digests_differ() -> None:
    wires, denver, orlando = pair()
    denver.put("link", "a", b"1")
    denver.advance(10 * MS)
    assert [type(message) for _, message in denver.sends] == [StateDelta]
    denver.sends.clear()
    wires.run(3 * S)
    assert orlando.get("denver", "link", "a") == b"1"
    kinds = [type(message) for _, _, message in wires.said]
    assert 1 <= kinds.count(VersionVector) <= 2
    assert kinds.count(StateDelta) == 1
    wires.said.clear()
    wires.run(13 * S)
    assert {type(message) for _, _, message in wires.said} == {StateDigest}
    assert 16 <= len(wires.said) <= 24


def test_who_joins_gets_everything_once() -> None:
    hubs = [StateStore(f"hub{number}", 1) for number in range(4)]
    wires = Wires()
    for one, other in pairwise([*hubs, hubs[0]]):
        wires.join(one, other)
    for hub in hubs:
        for number in range(5):
            hub.put("need", str(number), b"x" * 100)
    wires.run(2 * S)
    wires.said.clear()
    late = StateStore("late", 1)
    for hub in hubs:
        wires.join(late, hub, 2 * S)
    wires.run(2 * S + 500 * MS)
    assert len(list(late.all("need"))) == 20
    to_late = [message for _, to, message in wires.said if to == "late"]
    assert sorted(each.origin for each in to_late if isinstance(each, StateDelta)) == [
        hub.name for hub in hubs
    ]


def test_in_a_large_network_all_stamps_are_sent_rarely_while_much_changes() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    for number in range(639):
        store.receive("orlando", facts(f"n{number}", 0, 1), 0)
    store.sends.clear()
    for number in range(1, 31):
        store.receive("orlando", StateDigest(number), number * S)
    assert [type(message) for _, message in store.sends] == [VersionVector] * 3
    # They differ for the first time: something was lost.
    store.receive("orlando", StateDigest(store.digest), 31 * S)
    store.sends.clear()
    store.receive("orlando", StateDigest(1), 32 * S)
    store.receive("orlando", StateDigest(2), 32 * S + 1)
    assert [type(message) for _, message in store.sends] == [VersionVector]


def test_asking_for_what_is_no_news_has_all_stamps_sent_at_once() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    for number in range(639):
        store.receive("orlando", facts(f"n{number}", 0, 1), 0)
    store.receive("orlando", StateDigest(1), S)
    store.receive("orlando", DeltaRequest("n7", 0, 0), S + 1)
    store.sends.clear()
    store.receive("orlando", StateDigest(2), 2 * S)
    assert store.sends == [], "it is on its way, perhaps"
    store.receive("orlando", DeltaRequest("n7", 0, 0), 3 * S)
    store.receive("orlando", StateDigest(3), 3 * S)
    assert [type(message) for _, message in store.sends] == [VersionVector]


def test_what_is_passed_on_has_all_changes_since_the_last_time() -> None:
    store = StateStore("denver", 100)
    for neighbour in ("orlando", "seattle"):
        store.link_up(neighbour, 0)
    store.receive("orlando", facts("far", 0, 1), 0)
    store.advance(0)
    store.sends.clear()
    first, second = StateRecord("link", "a", b"1", 2), StateRecord("link", "b", b"2", 3)
    store.receive("orlando", facts("far", 1, 2, first), 1)
    store.receive("orlando", facts("far", 2, 3, second), 2)
    store.advance(3)
    assert store.sends == []
    store.advance(5 * MS)
    assert store.sends == [("seattle", facts("far", 1, 3, first, second))]


def test_who_sends_all_stamps_is_told_what_it_lacks() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    said = [StateRecord("link", str(key), b"1", key + 1) for key in range(3)]
    store.receive("orlando", facts("far", 0, 3, *said), 0)
    store.advance(900 * MS)
    store.sends.clear()
    more = StateRecord("link", "x", b"1", 4)
    store.link_up("seattle", 900 * MS)
    store.receive("seattle", facts("far", 3, 4, more), 900 * MS)
    store.link_down("orlando")
    store.link_up("orlando", 900 * MS)
    store.sends.clear()
    own = {"denver": store.version_of("denver")}
    theirs = VersionVector({**own, "far": (7, 3)}, is_complete=True)
    store.receive("orlando", theirs, 901 * MS)
    store.advance(901 * MS)
    assert store.sends == [], "it asks for itself, as it has heard all stamps just now"
    store.receive("orlando", theirs, 1_500 * MS)
    store.receive("orlando", VersionVector({**own, "far": (7, 4), "orlando": (1, 1)}), 1_500 * MS)
    store.advance(1_500 * MS)
    assert not any(isinstance(message, StateDelta) for _, message in store.sends), (
        "it has it by now"
    )
    store.receive("orlando", theirs, 1_600 * MS)
    store.advance(1_600 * MS)
    assert ("orlando", facts("far", 3, 4, more)) in store.sends


def test_a_restart_of_a_link_forgets_what_was_said_over_it() -> None:
    _, denver, orlando = pair()
    denver.put("link", "a", b"1")
    denver.advance(10 * MS)
    denver.sends.clear()
    wires = Wires()
    wires.join(denver, orlando, 20 * MS)
    wires.run(30 * MS)
    assert orlando.get("denver", "link", "a") == b"1"


def test_messages_from_elsewhere_are_not_heard() -> None:
    store = StateStore("denver", 100)
    store.receive("orlando", facts("seattle", 0, 1), 0)
    store.link_up("orlando", 0)
    store.link_down("orlando")
    store.receive("orlando", facts("seattle", 0, 1), 0)
    assert (store.counts.stray, store.origins()) == (2, ["denver"])
    assert store.next_due_us() is None


# ------------------------------------------------------------------------------------- tombstones


def test_tombstones_go_after_their_time_and_then_all_there_is_is_sent() -> None:
    wires, denver, orlando = pair()
    for key in "abc":
        denver.put("link", key, b"1")
    wires.run(S)
    orlando.link_down("denver")
    denver.link_down("orlando")
    denver.drop("link", "a")
    denver.put("link", "d", b"1")
    denver.advance(2 * S)
    assert denver.tombstones == 1
    denver.advance(800 * S)
    assert (denver.tombstones, orlando.tombstones) == (0, 0)
    wires.said.clear()
    wires.join(denver, orlando, 801 * S)
    wires.settle(801 * S)
    assert orlando.of("denver", "link") == {"b": b"1", "c": b"1", "d": b"1"}
    whole = [message for _, _, message in wires.said if isinstance(message, StateDelta)]
    assert [message.base for message in whole] == [0]


def test_tombstones_are_few_however_much_is_dropped() -> None:
    wires, denver, orlando = pair(StateOptions(tombstones_limit=10))
    for number in range(1_000):
        denver.put("need", str(number), b"1")
        if number >= 5:
            denver.drop("need", str(number - 5))
    wires.run(5 * S)
    assert (denver.tombstones, orlando.tombstones) == (10, 0)
    assert list(orlando.of("denver", "need")) == ["995", "996", "997", "998", "999"]
    denver.drop("need", "999")
    denver.put("need", "999", b"2")
    wires.run(6 * S)
    assert orlando.get("denver", "need", "999") == b"2"
    assert denver.tombstones == 9


def test_a_store_without_tombstones_has_no_reason_to_wake() -> None:
    store = StateStore("denver", 100)
    store.put("link", "a", b"1")
    store.drop("link", "a")
    store.advance(0)
    assert store.next_due_us() == 75 * S
    store.advance(700 * S)
    assert store.next_due_us() is None


# ------------------------------------------------------------------------------------- forgetting


def test_the_forgotten_comes_back_with_something_new_only() -> None:
    wires, denver, orlando = pair()
    denver.put("link", "a", b"1")
    wires.run(S)
    heard: list[tuple[str, str, bytes | None]] = []
    orlando.watch("link", lambda *change: heard.append(change))
    orlando.link_down("denver")
    orlando.expire("denver")
    orlando.expire("denver")
    assert orlando.origins() == ["orlando"]
    assert heard == [("denver", "a", None)]

    # Another neighbour knows the same of it.
    other = StateStore("seattle", 1)
    stamp = denver.version_of("denver")
    wires = Wires()
    wires.join(other, orlando, 2 * S)
    old = StateDelta("denver", *stamp[:1], 0, stamp[1], (StateRecord("link", "a", b"1", 2),))
    orlando.receive("seattle", old, 2 * S)
    orlando.receive("seattle", VersionVector({"denver": stamp}), 2 * S)
    orlando.advance(2 * S + 1)
    assert orlando.origins() == ["orlando"]
    assert not any(isinstance(message, DeltaRequest) for _, message in orlando.sends)
    told = next(message for _, message in orlando.sends if isinstance(message, VersionVector))
    assert told.expired == {"denver": stamp}

    orlando.sends.clear()
    orlando.recall("denver")
    orlando.advance(3 * S)
    assert ("seattle", DeltaRequest("denver", 0, 0)) in orlando.sends
    orlando.receive("seattle", old, 3 * S)
    assert orlando.get("denver", "link", "a") == b"1"

    orlando.expire("denver")
    newer = StateDelta(
        "denver", stamp[0], stamp[1], stamp[1] + 1, (StateRecord("link", "b", b"1", 3),)
    )
    orlando.receive("seattle", newer, 4 * S)
    orlando.sends.clear()
    orlando.advance(4 * S)
    assert ("seattle", DeltaRequest("denver", 0, 0)) in orlando.sends


def test_neighbours_do_not_insist_on_what_one_has_forgotten() -> None:
    wires = Wires()
    hub, one, gone = (StateStore(name, 1) for name in ("hub", "one", "gone"))
    wires.join(hub, one)
    wires.join(hub, gone)
    wires.run(S)
    assert one.version_of("gone") == (1, 1)
    hub.link_down("gone")
    del wires.stores[id(gone)]
    one.expire("gone")
    wires.said.clear()
    wires.run(20 * S)
    assert not any(isinstance(message, StateDelta) for _, _, message in wires.said)
    hub.expire("gone")
    wires.run(21 * S)
    wires.said.clear()
    wires.run(40 * S)
    assert {type(message) for _, _, message in wires.said} == {StateDigest}


# ------------------------------------------------------------------------------------- one's name


def test_a_node_restarted_with_its_clock_set_back_is_heard() -> None:
    wires, denver, orlando = pair()
    denver.put("link", "a", b"old")
    wires.run(S)
    again = StateStore("denver", 3)
    again.put("link", "b", b"new")
    wires = Wires()
    wires.join(again, orlando, 2 * S)
    wires.run(4 * S)
    assert orlando.of("denver", "link") == {"b": b"new"}
    assert again.incarnation == 101
    assert again.jumps == 1
    assert "from before a restart" in again.problem
    wires.said.clear()
    wires.run(8 * S)
    assert {type(message) for _, _, message in wires.said} == {StateDigest}


def test_beyond_its_former_self_a_node_says_everything_again_at_once() -> None:
    store = StateStore("denver", 100)
    store.put("link", "a", b"1")
    store.link_up("orlando", 0)
    store.advance(0)
    store.sends.clear()
    store.receive("orlando", VersionVector({"denver": (170, 4)}), 10 * MS)
    assert store.next_due_us() == 0
    store.advance(10 * MS)
    said = StateDelta("denver", 171, 0, 2, (StateRecord("link", "a", b"1", 2),))
    assert store.sends == [("orlando", said)]
    store.check_invariants()


def test_two_nodes_of_one_name_are_told_and_do_not_flood_the_rest() -> None:
    wires = Wires()
    one, two = StateStore("denver", 10), StateStore("denver", 20)
    east, west = StateStore("east", 1), StateStore("west", 1)
    wires.join(east, west)
    wires.join(one, east)
    wires.join(two, west)
    one.put("node", "", b"one")
    two.put("node", "", b"two")
    wires.run(600 * S)
    assert "another node has the same name, one of them must be renamed" in one.problem
    assert "another node has the same name" in two.problem
    assert 5 < one.jumps + two.jumps < 50
    assert east.problem == west.problem == ""


def test_a_claim_that_nothing_is_beyond_is_left_alone() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    store.receive("orlando", VersionVector({"denver": (2**53, 5)}), 1)
    store.receive("orlando", facts("denver", 0, 2**53, incarnation=2**53), 1)
    store.advance(2)
    assert (store.jumps, store.incarnation) == (0, 100)


def test_a_leap_is_believed_within_bounds_and_not_time_and_again() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    leap = 2**42

    def say(incarnation: int, now_us: int = 0) -> bool:
        store.receive("orlando", facts("austin", 0, 1, incarnation=incarnation), now_us)
        store.check_invariants()
        return store.version_of("austin")[0] == incarnation

    assert not say(2**52 + 1)
    assert say(100)
    assert not say(100 + leap + 1)
    assert say(100 + leap)
    assert all(say(100 + count * leap) for count in range(2, 11))
    assert not say(100 + 11 * leap), "ten leaps at once are enough"
    assert say(100 + 10 * leap + 60_000), "started a minute later"
    assert say(100 + 11 * leap, 61 * S)
    assert store.counts.implausible == 3


def test_a_leap_too_far_is_believed_once_it_is_hardly_so() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    store.receive("orlando", facts("austin", 0, 1, incarnation=100), 0)
    for now_us in (S, 2 * S):
        store.receive("orlando", facts("austin", 0, 1, incarnation=101 + 2**42), now_us)
    assert store.version_of("austin") == (101 + 2**42, 1)


def test_a_node_is_not_lured_beyond_what_others_believe() -> None:
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    store.receive("orlando", VersionVector({"denver": (2**52, 5)}), 1)
    store.advance(2)
    assert (store.jumps, store.incarnation) == (0, 100)


def test_a_lie_that_a_node_s_own_changes_pass_is_outdone_as_well() -> None:
    """Others may have taken it for what the node then says."""
    store = StateStore("denver", 100)
    store.link_up("orlando", 0)
    store.receive("orlando", facts("denver", 0, 2, incarnation=100), 1)
    store.put("link", "a", b"1")
    store.put("link", "b", b"1")
    store.advance(2)
    assert store.incarnation == 101


def test_an_adjacent_node_alone_says_what_it_says() -> None:
    wires, denver, orlando = pair()
    store = StateStore("austin", 300)
    wires.join(orlando, store)
    orlando.set_adjacent("denver", is_adjacent=True)
    lie = facts("denver", 0, 9, StateRecord("link", "x", b"lie", 9), incarnation=150)
    denver.put("link", "a", b"1")
    wires.run(S)
    orlando.receive("austin", lie, S)
    orlando.receive("austin", lie, S)
    assert orlando.of("denver", "link") == {"a": b"1"}
    assert orlando.sends == [("denver", VersionVector({"denver": (150, 9)}))], "told once"
    wires.run(2 * S)
    assert denver.incarnation == 151
    assert orlando.version_of("denver") == store.version_of("denver") == denver.version_of("denver")


def test_of_a_node_no_longer_adjacent_others_say_what_is_new() -> None:
    wires, _, orlando = pair()
    austin = StateStore("austin", 300)
    wires.join(orlando, austin)
    wires.settle(0)
    orlando.set_adjacent("denver", is_adjacent=True)
    austin.link_up("houston", 0)
    wires.ends[id(austin), "houston"] = StateStore("houston", 1), "austin"
    austin.receive("houston", facts("denver", 0, 9, incarnation=150), 0)
    wires.settle(0)
    assert orlando.version_of("denver")[0] < 150
    del wires.ends[id(orlando), "denver"]
    orlando.link_down("denver")
    wires.run(3 * S)
    assert orlando.version_of("denver") == (150, 9)


# ------------------------------------------------------------------------------------- hostility

NUMBERS = st.one_of(st.integers(-3, 12), st.sampled_from([2**53, 2**53 + 1, 2**64 - 1, -(2**63)]))
NAMES = st.sampled_from(["", "me", "friend", "a", "b", "c", "d", "x" * 300])
STAMPS = st.tuples(NUMBERS, NUMBERS)
FACT = st.builds(
    StateRecord,
    kind=st.sampled_from(["link", "need", "", "k" * 65]),
    key=st.sampled_from(["", "a", "b", "c", "d", "k" * 1_025]),
    value=st.none() | st.sampled_from([b"", b"1", b"2", b"x" * 50, b"x" * 200]),
    version=NUMBERS,
)
SOUND = st.builds(
    lambda origin, incarnation, base, said: StateDelta(
        origin,
        incarnation,
        base,
        base + len(said),
        tuple(
            StateRecord("need", key, value, base + at) for at, (key, value) in enumerate(said, 1)
        ),
    ),
    NAMES,
    st.integers(0, 3),
    st.integers(0, 6),
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.none() | st.just(b"1") | st.just(b"x" * 90)),
        max_size=6,
        unique_by=lambda each: each[0],
    ),
)
MESSAGES = st.one_of(
    SOUND,
    st.builds(StateDelta, NAMES, NUMBERS, NUMBERS, NUMBERS, st.lists(FACT, max_size=5).map(tuple)),
    st.builds(StateDigest, NUMBERS),
    st.builds(
        VersionVector,
        st.dictionaries(NAMES, STAMPS, max_size=8),
        st.booleans(),
        st.dictionaries(NAMES, STAMPS, max_size=8),
    ),
    st.builds(DeltaRequest, NAMES, NUMBERS, NUMBERS),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=40), st.data())
def test_no_message_does_harm(messages: list[FactMessage], data: st.DataObject) -> None:
    options = StateOptions(
        records_limit=4,
        tombstones_limit=3,
        value_limit=100,
        origin_bytes_limit=2_200,
        bytes_limit=5_000,
        origins_limit=4,
        requests_limit=2,
    )
    store = StateStore("me", 5, options)
    store.link_up("friend", 0)
    store.link_up("other", 0)
    store.put("need", "mine", b"1")
    now_us = 0
    for message in messages:
        before = {origin: store.version_of(origin) for origin in store.origins()}
        store.receive("friend", message, now_us)
        store.check_invariants()
        for origin, stamp in before.items():
            assert store.version_of(origin) >= stamp
        assert store.of("me", "need") == {"mine": b"1"}
        if data.draw(st.booleans()):
            now_us += data.draw(st.sampled_from([MS, 100 * MS, 1_500 * MS, 700 * S]))
            store.advance(now_us)
            store.check_invariants()
            assert len(store.sends) <= 8 * options.origins_limit + 10
            for _, sent in store.sends:
                assert CODE.decode(msgspec.msgpack.encode(sent)) == sent
            store.sends.clear()


def torrent() -> Iterator[FactMessage]:
    for number in range(5_000):
        origin = f"n{number}"
        yield VersionVector({f"{origin}.{each}": (1, 1) for each in range(10)}, is_complete=True)
        yield facts(origin, 5, 6, StateRecord("link", "a", b"1", 6))
        yield facts(origin, 0, 1, StateRecord("link", "a", b"x" * 1_000, 1))
        yield facts("busy", 0, number + 1, StateRecord("link", "a", b"x", number + 1))
        yield facts("many", number, number + 1, StateRecord("link", origin, b"x", number + 1))
        yield DeltaRequest(origin, 1, 1)
        yield StateDigest(number)


def test_a_torrent_of_messages_does_not_grow_memory() -> None:
    options = StateOptions(origins_limit=100, bytes_limit=100_000, records_limit=50)
    store = StateStore("me", 5, options)
    store.link_up("friend", 0)
    most = sent = 0
    for number, message in enumerate(torrent()):
        store.receive("friend", message, number)
        store.advance(number)
        sent += len(store.sends)
        store.sends.clear()
        most = max(most, store.memory_bytes)
    store.check_invariants()
    assert most <= 101_000
    assert len(store.origins()) <= 100
    assert store.counts.refused > 1_000
    assert sent < 35_000 / 50
