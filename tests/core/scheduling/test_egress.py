from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.egress import Egress, WaitingDestination
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.strategies import FIFO, LAXITY, STRICT, WEIGHTED_FAIR, Discipline


def parcel(
    importance: int = 3, size: int = 100, queued_ms: int = 0, expires_ms: int = 0, bin_: int = -1
) -> QueueEntry:
    return QueueEntry(size, 1, importance, queued_ms, expires_ms, bin_=bin_)


class Destinations:
    """Names with what waits for them, each in order; taken one parcel at a time."""

    def __init__(self, strategy: int = STRICT, weights: list[int] | None = None) -> None:
        self.discipline = Discipline(strategy, weights)
        self.egress = Egress(self.discipline)
        self.turns: dict[str, WaitingDestination] = {}
        self.waiting: dict[str, list[QueueEntry]] = {}

    def put(self, name: str, *parcels: QueueEntry) -> None:
        self.waiting.setdefault(name, []).extend(parcels)
        self.turns.setdefault(name, WaitingDestination(name))
        self.offer(name)

    def offer(self, name: str) -> None:
        if self.waiting[name]:
            self.egress.put(self.turns[name], self.waiting[name][0], 1)
        else:
            self.egress.remove(self.turns[name])
        self.egress.check_invariants()

    def send(self) -> str:
        turn = self.egress.take()
        if turn is None:
            return ""
        name = str(turn.owner)
        self.egress.sent(turn, self.waiting[name].pop(0).size)
        self.offer(name)
        return name

    def send_all(self) -> list[str]:
        sent = []
        while name := self.send():
            sent.append(name)
        return sent


def test_nobody_waits() -> None:
    assert Destinations().send_all() == []


def test_strict_the_highest_bin_goes_first() -> None:
    them = Destinations()
    them.put("a", parcel(3), parcel(7))
    them.put("b", parcel(5), parcel(2))
    them.put("c", parcel(5, bin_=10))
    assert them.send_all() == ["b", "c", "a", "a", "b"], "heavy after light, each in its own order"


def test_equals_take_turns_by_bytes() -> None:
    them = Destinations()
    them.put("large", *(parcel(size=1_000) for _ in range(10)))
    them.put("small", *(parcel(size=100) for _ in range(100)))
    sent = [them.send() for _ in range(55)]
    assert sent.count("large") == 5
    assert sent.count("small") == 50


def test_who_comes_late_gets_no_more_than_others() -> None:
    them = Destinations()
    them.put("a", *(parcel() for _ in range(100)))
    for _ in range(50):
        assert them.send() == "a"
    them.put("b", *(parcel() for _ in range(50)))
    sent = [them.send() for _ in range(50)]
    assert abs(sent.count("a") - sent.count("b")) <= 1


def test_who_pauses_saves_nothing_up() -> None:
    them = Destinations()
    them.put("a", parcel())
    assert them.send() == "a"
    them.put("b", *(parcel() for _ in range(50)))
    for _ in range(40):
        assert them.send() == "b"
    them.put("a", *(parcel() for _ in range(10)))
    sent = [them.send() for _ in range(10)]
    assert sent.count("a") == 5


def test_news_change_a_place_only_if_they_are_of_another_kind() -> None:
    them = Destinations()
    them.put("a", parcel())
    them.put("b", parcel())
    them.offer("a")
    assert them.send() == "a"
    them.put("a", parcel())
    them.waiting["a"].insert(0, parcel(6))
    them.offer("a")
    assert them.send_all() == ["a", "b", "a"]


def test_weighted_fair_shares_by_importance_whoever_they_are_for() -> None:
    weights = [1] * IMPORTANCES
    weights[6] = 3
    them = Destinations(WEIGHTED_FAIR, weights)
    for name in ("x", "y", "z"):
        them.put(name, *(parcel(2, size=700) for _ in range(300)))
    them.put("important", *(parcel(6, size=1_100) for _ in range(600)))
    sent = [them.send() for _ in range(500)]
    important = 1_100 * sent.count("important")
    others = 700 * (len(sent) - sent.count("important"))
    assert abs(important / (important + others) - 0.75) < 0.01
    counts = [sent.count(name) for name in ("x", "y", "z")]
    assert max(counts) - min(counts) <= 1


def test_laxity_what_is_due_first_goes_first() -> None:
    them = Destinations(LAXITY)
    them.put("a", parcel(3, expires_ms=500), parcel(3, expires_ms=700))
    them.put("b", parcel(3, expires_ms=600), parcel(7))
    them.put("c", parcel(1, expires_ms=100))
    assert them.send_all() == ["c", "a", "b", "a", "b"]


def test_first_come_the_oldest_goes_first_whatever_it_is() -> None:
    them = Destinations(FIFO)
    them.put("a", parcel(7, queued_ms=3), parcel(7, queued_ms=6))
    them.put("b", parcel(1, queued_ms=1), parcel(1, queued_ms=5))
    them.put("c", parcel(3, queued_ms=2), parcel(3, queued_ms=4))
    assert them.send_all() == ["b", "c", "a", "c", "b", "a"]


def test_another_strategy_applies_to_those_who_wait() -> None:
    them = Destinations(FIFO)
    them.put("a", parcel(1, queued_ms=1), parcel(1, queued_ms=2))
    them.put("b", parcel(6, queued_ms=3), parcel(6, queued_ms=4))
    assert them.send() == "a"
    them.discipline.change(STRICT)
    assert them.send() == "b"
    them.discipline.change(FIFO)
    assert them.send_all() == ["a", "b"]


def test_after_a_change_nobody_is_behind() -> None:
    them = Destinations()
    them.put("a", *(parcel() for _ in range(200)))
    for _ in range(100):
        them.send()
    held = them.turns["a"]
    them.egress.remove(held)
    them.discipline.change(WEIGHTED_FAIR)
    them.put("b", *(parcel() for _ in range(100)))
    them.offer("a")
    sent = [them.send() for _ in range(20)]
    assert abs(sent.count("a") - sent.count("b")) <= 1


def test_who_can_not_be_sent_to_is_passed_over() -> None:
    them = Destinations()
    them.put("a", parcel(7))
    them.put("b", parcel(2))
    them.egress.remove(them.turns["a"])
    them.egress.remove(them.turns["a"])
    assert them.send_all() == ["b"]
    them.offer("a")
    assert them.send_all() == ["a"]


def test_places_that_are_given_up_are_not_kept() -> None:
    them = Destinations()
    them.put("a", parcel())
    for round_ in range(2_000):
        them.egress.put(them.turns["a"], parcel(round_ % 2), 1)
    assert sum(len(each.heap) for each in them.egress._bins) < 200


@given(
    strategy=st.sampled_from([STRICT, WEIGHTED_FAIR, LAXITY, FIFO]),
    steps=st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from("abcd"),
                st.integers(0, 7),
                st.integers(1, 70_000),
                st.sampled_from([0, 0, 50, 900]),
            ),
            st.sampled_from(["send", "hold", "strategy"]),
        ),
        max_size=60,
    ),
)
def test_all_that_waits_is_sent_in_the_end(
    strategy: int, steps: list[tuple[str, int, int, int] | str]
) -> None:
    them = Destinations(strategy)
    put = sent = 0
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            name, importance, size, expires_ms = step
            them.put(name, parcel(importance, size, number, expires_ms))
            put += 1
        elif step == "send":
            sent += bool(them.send())
        elif step == "hold" and them.turns:
            them.egress.remove(next(iter(them.turns.values())))
        elif step == "strategy":
            them.discipline.change((them.discipline.strategy + 1) % 4)
    for name in them.turns:
        them.offer(name)
    sent += len(them.send_all())
    assert sent == put
    assert them.egress.waiting == 0
