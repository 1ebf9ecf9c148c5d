from __future__ import annotations

from fractions import Fraction
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from accord.core.broker.runs import MessageRun
from accord.core.model.units import IMPORTANCES
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V311
from accord.core.mqtt.packets import Publish
from accord.core.policy.grants import Grant
from accord.core.scheduling.lanes import BINS
from accord.core.scheduling.outbox import EventRun, Outbox, QueueEntry
from accord.core.scheduling.pacing import Gate, Pacer
from accord.core.scheduling.queue_entries import ANY_NUMBER, due_ms
from accord.core.scheduling.strategies import FIFO, LAXITY, STRICT, WEIGHTED_FAIR, Discipline

ALL: Final = 1 << 40


def parcel(
    size: int = 1, importance: int = 3, queued_ms: int = 0, expires_ms: int = 0
) -> QueueEntry:
    return QueueEntry(size, 1, importance, queued_ms, expires_ms)


def letters(
    size: int, count: int, importance: int = 3, queued_ms: int = 0, number: int = 0
) -> MessageRun:
    """A run of events that have `size` bytes each."""
    frame = bytes([0x30, size - 2]) + bytes(size - 2)
    grant = Grant(importance, 0, "", 0, 0, False, "")
    counts = ChannelCounts("letters")
    return MessageRun(frame * count, count, grant, queued_ms, number, "letters", "", counts)


def outbox(
    bytes_limit: int = 100,
    tracked_limit: int = 100,
    tracked_bytes: int = 100,
    discipline: Discipline | None = None,
) -> Outbox:
    return Outbox(
        bytes_limit=bytes_limit,
        tracked_limit=tracked_limit,
        tracked_bytes_limit=tracked_bytes,
        discipline=discipline,
    )


def test_the_important_goes_first_and_equals_in_order() -> None:
    box = outbox()
    first, second, urgent, tracked = parcel(), parcel(), parcel(importance=7), parcel()
    for each in (first, second, urgent):
        assert box.put(each) is None
    assert box.put_tracked(tracked) is None
    assert box.take(ALL, 10) == [urgent, tracked, first, second]
    assert box.is_empty()


def test_one_takes_at_least_what_was_wanted() -> None:
    box = outbox()
    some = [parcel(10) for _ in range(5)]
    for each in some:
        box.put(each)
    assert box.take(15, 0) == some[:2]
    assert box.bytes == 30
    assert box.take(1, 0) == some[2:3]
    assert box.take(0, 0) == []


def test_what_waits_alone_is_taken_by_itself() -> None:
    box = outbox()
    plain, promised = parcel(5), parcel(5)
    assert box.take_single(ALL, 9) is None
    box.put(plain)
    assert box.take_single(4, 9) is None, "it is more than is wanted"
    box.put_tracked(promised)
    assert box.take_single(ALL, 9) is None, "there are two"
    box.remove(promised, True)
    assert box.take_single(5, 0) is plain
    assert box.is_empty()
    box.put_tracked(promised)
    assert box.take_single(ALL, 0) is None, "the window is closed"
    assert box.take_single(ALL, 1) is promised
    box.put(plain)
    box.put(parcel(importance=7))
    assert box.take_single(ALL, 1) is None
    box.take(1, 0)
    box.check_invariants()
    assert box.take(ALL, 0) == [plain]


def test_a_closed_window_holds_up_only_what_is_tracked() -> None:
    box = outbox()
    promised = [parcel() for _ in range(3)]
    for each in promised:
        box.put_tracked(each)
    plain = parcel(importance=0)
    box.put(plain)
    assert box.take(ALL, 2) == [*promised[:2], plain]
    assert box.take(ALL, 0) == []
    assert box.take(ALL, -1) == [], "more may be on its way than a new connection allows"
    assert box.take(ALL, 1) == promised[2:]


@pytest.mark.parametrize("strategy", [STRICT, WEIGHTED_FAIR, LAXITY, FIFO])
def test_a_window_that_closes_meanwhile_closes_for_all_bins(strategy: int) -> None:
    box = outbox(discipline=Discipline(strategy))
    for importance in (1, 3, 5):
        for _ in range(3):
            box.put_tracked(parcel(importance=importance))
    box.put(parcel(importance=5, queued_ms=1))
    assert len(box.take(ALL, 2)) == 3
    assert (box.tracked, box.bytes) == (7, 0)
    box.put(parcel(importance=1, queued_ms=1))
    box.put(parcel(importance=1, queued_ms=1))
    assert len(box.take(ALL, 1)) == 3
    assert len(box.take(ALL, 5)) == 5


def test_full_the_oldest_of_the_least_important_gives_way() -> None:
    box = outbox(bytes_limit=30)
    important, old, older = parcel(10, importance=5), parcel(10), parcel(10)
    for each in (older, important, old):
        box.put(each)
    newcomer = parcel(15)
    assert box.put(newcomer) == [older, old]
    assert box.put(unimportant := parcel(10, importance=0)) == [unimportant]
    assert box.take(ALL, 0) == [important, newcomer]


def test_nobody_gives_way_to_what_can_never_be_queued() -> None:
    box = outbox(bytes_limit=30)
    waiting = parcel(30)
    box.put(waiting)
    huge = parcel(31, importance=7)
    assert box.put(huge) == [huge]
    assert box.take(ALL, 0) == [waiting]


def test_full_a_tracked_newcomer_is_refused_among_equals() -> None:
    box = outbox(tracked_limit=2)
    first, second, newcomer, urgent = parcel(), parcel(), parcel(), parcel(importance=4)
    for each in (first, second):
        box.put_tracked(each)
    assert box.put_tracked(newcomer) == [newcomer]
    assert box.put_tracked(urgent) == [second], "the newest of what is less important"
    assert box.take(ALL, 9) == [urgent, first]


def test_as_many_give_way_as_are_needed() -> None:
    box = outbox(tracked_bytes=10)
    small, middling = parcel(1, importance=0), parcel(5, importance=1)
    box.put_tracked(small)
    box.put_tracked(middling)
    assert box.put_tracked(parcel(9, importance=5)) == [small, middling]
    assert box.tracked_bytes == 9
    too_large = parcel(11, importance=7)
    assert box.put_tracked(too_large) == [too_large], "and none for nothing"


def test_what_was_promised_is_queued_beyond_the_limits() -> None:
    box = outbox(tracked_limit=1)
    promised = [parcel(), parcel(), parcel()]
    for each in promised:
        assert box.put_tracked(each, is_promised=True) is None
    newcomer, urgent = parcel(), parcel(importance=7)
    assert box.put_tracked(newcomer) == [newcomer]
    assert box.put_tracked(urgent) == [promised[2]], "one for one"
    assert box.take(ALL, 9) == [urgent, *promised[:2]]


def test_what_is_dropped_is_not_counted_any_more() -> None:
    box = outbox()
    plain, tracked = parcel(5), parcel(7)
    box.put(plain)
    box.put_tracked(tracked)
    assert box.drop_untracked() == [plain]
    assert (box.bytes, box.tracked_bytes) == (0, 7)
    box.drop_tracked()
    assert box.is_empty()
    assert box.take(ALL, 9) == []


def test_events_and_bytes_that_wait_by_importance() -> None:
    box = outbox()
    box.put(EventRun(b"frames", 3, 3, 0))
    box.put_tracked(parcel(2, importance=3))
    box.put(parcel(4, importance=7))
    assert box.depth() == [0, 0, 0, 4, 0, 0, 0, 1]
    assert box.bytes_waiting() == [0, 0, 0, 8, 0, 0, 0, 4]


def test_a_long_queue_in_small_pieces() -> None:
    box = outbox(bytes_limit=10_000)
    some = [parcel() for _ in range(1_000)]
    taken: list[QueueEntry] = []
    for number, each in enumerate(some):
        box.put(each)
        if number % 3 == 2:
            taken += box.take(2, 0)
    while more := box.take(1, 0):
        taken += more
    assert taken == some


def test_light_before_heavy_and_heavy_gives_way_first() -> None:
    box = outbox(bytes_limit=3)
    heavy, light = QueueEntry(1, 1, 3, 0, bin_=6), QueueEntry(1, 1, 3, 0)
    assert light.bin == 7
    box.put(light)
    box.put(heavy)
    assert box.put(more := QueueEntry(2, 1, 3, 0)) == [heavy]
    assert box.take(ALL, 0) == [light, more]


def test_in_a_bin_the_older_goes_first() -> None:
    box = outbox()
    late, early, plain = parcel(queued_ms=9), parcel(queued_ms=4), parcel(queued_ms=7)
    box.put_tracked(early)
    box.put(plain)
    box.put_tracked(late)
    assert box.take(ALL, 9) == [early, plain, late]


def test_a_run_is_split_so_that_no_more_than_an_event_is_too_much() -> None:
    box = outbox()
    run = letters(2, 5, number=70)
    box.put(run)
    first = box.take(3, 0)
    assert [(each.size, each.count, each.number) for each in first] == [(4, 2, 70)]
    assert (box.bytes, sum(box.depth())) == (6, 3)
    box.put(urgent := parcel(importance=7))
    assert box.take(1, 0) == [urgent], "what is more important goes in between"
    rest = box.take(6, 0)
    assert [(each.size, each.count, each.number) for each in rest] == [(6, 3, 72)]
    assert box.is_empty()
    assert (run.size, run.count) == (10, 5), "others may have it in their outboxes too"


def test_behind_a_limit_what_is_large_goes_apart_from_what_is_small_in_a_run() -> None:
    small, large = (encode(Publish("a", bytes(size)), V311) for size in (40, 50_000))
    grant = Grant(3, 0, "", 0, 0, False, "")
    frames = small * 3 + large + small
    box = outbox(bytes_limit=ALL)
    box.put(MessageRun(frames, 5, grant, 0, 1, "a", "", ChannelCounts("a")))
    gate = Gate([Pacer(300_000)])
    now_us = 0
    sizes: list[int] = []
    while not box.is_empty():
        gate.advance(now_us)
        taken = box.take_admitted(gate.portion(), 0, gate)
        size = sum(each.size for each in taken)
        if taken:
            gate.sent(size, now_us)
            sizes.append(size)
        now_us += gate.wait_us
    assert sizes == [3 * len(small), len(large), len(small)]


def test_behind_a_limit_what_is_small_is_not_made_large_by_what_goes_with_it() -> None:
    frames = [encode(Publish("a", bytes(size)), V311) for size in (1_000, 3_700, 1_000)]
    run = MessageRun(
        b"".join(frames), 3, Grant(3, 0, "", 0, 0, False, ""), 0, 1, "a", "", ChannelCounts("a")
    )
    pacer = Pacer(300_000)
    assert run.part(pacer.portion, pacer.large) == len(frames[0])


def test_a_run_that_can_not_be_split_goes_whole() -> None:
    box = outbox()
    run = EventRun(b"aabbcc", 3, 3, 0)
    box.put(run)
    assert box.take(1, 0) == [run]


def test_what_is_void_is_neither_sent_nor_counted() -> None:
    box = outbox()
    some = [parcel(2) for _ in range(5)]
    for each in some:
        box.put(each)
    for position in (2, 0, 1):
        box.remove(some[position], is_tracked=False)
        box.check_invariants()
    assert (box.bytes, sum(box.depth())) == (4, 2)
    assert box.take(ALL, 0) == some[3:]
    tracked = [parcel() for _ in range(3)]
    for each in tracked:
        box.put_tracked(each)
    box.remove(tracked[1], is_tracked=True)
    box.remove(tracked[2], is_tracked=True)
    box.check_invariants()
    assert (box.tracked, box.tracked_bytes) == (1, 1)
    assert box.take(ALL, 9) == tracked[:1]


def test_a_run_void_here_is_sent_elsewhere() -> None:
    here, there = outbox(), outbox()
    run, other = EventRun(b"aa", 1, 3, 0), EventRun(b"bb", 1, 3, 0)
    for box in (here, there):
        for each in (parcel(), run, other):
            box.put(each)
    here.remove(run, is_tracked=False)
    assert here.take(ALL, 0)[1:] == [other]
    assert there.take(ALL, 0)[1:] == [run, other]


def test_replacing_for_ever_takes_no_more_room() -> None:
    box = outbox(bytes_limit=10)
    first, last = parcel(), parcel()
    box.put(first)
    value = parcel()
    box.put(value)
    box.put(last)
    for _ in range(1_000):
        box.remove(value, is_tracked=False)
        value = parcel()
        box.put(value)
    assert (box.bytes, sum(box.depth())) == (3, 3)
    assert max(len(each.untracked.items) for each in box._bins) < 200
    assert box.take(ALL, 0) == [first, last, value]


def test_what_is_replaced_keeps_its_place() -> None:
    box = outbox(bytes_limit=20, tracked_bytes=20)
    first, second = parcel(5), parcel(5)
    box.put(first)
    box.put(second)
    assert box.resize(first, 9, is_tracked=False) is None
    assert (first.size, box.bytes) == (9, 14)
    assert box.resize(second, 12, is_tracked=False) == [first], "the oldest gives way"
    assert box.resize(second, 21, is_tracked=False) == [second], "it could never be queued"
    assert box.is_empty()


def test_what_was_promised_gives_way_to_a_replacement_if_it_is_less_important() -> None:
    box = outbox(tracked_bytes=20)
    lesser, value, equal = parcel(5, importance=1), parcel(5), parcel(5)
    for each in (lesser, value, equal):
        box.put_tracked(each)
    assert box.resize(value, 10, is_tracked=True) is None
    assert box.resize(value, 14, is_tracked=True) == [lesser]
    assert box.resize(value, 17, is_tracked=True) == [value]
    assert box.take(ALL, 9) == [equal]


def test_beyond_the_limits_room_for_the_growth_will_do() -> None:
    box = outbox(tracked_bytes=5)
    lesser = [parcel(5, importance=1) for _ in range(3)]
    value = parcel(5)
    for each in (*lesser, value):
        box.put_tracked(each, is_promised=True)
    assert box.resize(value, 6, is_tracked=True) == [lesser[2]]
    assert box.tracked_bytes == 16


def test_what_has_expired_makes_room() -> None:
    box = outbox()
    some = [parcel(expires_ms=expires_ms) for expires_ms in (10, 0, 30, 20)]
    for each in some[:2]:
        box.put(each)
    for each in some[2:]:
        box.put_tracked(each)
    assert box.expire(9) == []
    assert box.expire(20) == [some[0], some[3]]
    assert (box.bytes, box.tracked) == (1, 1)
    assert box.take(ALL, 9) == [some[2], some[1]]


def test_looking_at_what_comes_next() -> None:
    box = outbox()
    assert box.peek(1) is None
    box.put(plain := parcel(3, importance=2))
    box.put_tracked(tracked := parcel(2, importance=6))
    assert (box.peek(1), box.peek(0)) == (tracked, plain)
    assert box.take(ALL, 1) == [tracked, plain]


def test_laxity_finds_the_first_due_wherever_it_is() -> None:
    box = outbox(discipline=Discipline(LAXITY))
    some = [
        parcel(importance=importance, expires_ms=expires_ms)
        for importance, expires_ms in ((7, 0), (3, 50), (3, 20), (5, 30), (3, 0), (3, 10))
    ]
    for each in some:
        box.put(each)
    box.put_tracked(tracked := parcel(expires_ms=15))
    assert box.peek(0) is some[5]
    order = [some[5], tracked, some[2], some[3], some[1], some[0], some[4]]
    assert [box.take(1, 1)[0] for _ in order] == order


def test_under_laxity_what_has_no_deadline_gives_way() -> None:
    box = outbox(bytes_limit=3, discipline=Discipline(LAXITY))
    never, soon, later = parcel(), parcel(expires_ms=10), parcel(expires_ms=20)
    for each in (never, later, soon):
        box.put(each)
    assert box.put(latest := parcel(expires_ms=30)) == [never]
    assert box.put(parcel(expires_ms=40)) == [soon]
    assert box.resize(latest, 1, is_tracked=False, expires_ms=5) is None
    assert box.take(1, 0) == [latest]


def test_under_weighted_fair_who_has_more_than_its_share_gives_way() -> None:
    """Else what matters little would never be sent, however fair the turns."""
    box = outbox(bytes_limit=40, discipline=Discipline(WEIGHTED_FAIR))
    lesser = parcel(5, importance=2)
    flood = [parcel(10, importance=3) for _ in range(4)]
    box.put(lesser)
    for each in flood[:3]:
        assert box.put(each) is None
    assert box.put(flood[3]) == [flood[0]]
    assert box.bytes_waiting()[2:4] == [5, 30]


def test_first_come_is_one_queue() -> None:
    box = outbox(discipline=Discipline(FIFO))
    some = [parcel(importance=time * 5 % 8, queued_ms=time) for time in range(20)]
    for each in some:
        box.put(each)
    assert box.take(12, 0) + box.take(ALL, 0) == some


def test_a_new_strategy_takes_all_that_waits_along() -> None:
    discipline = Discipline(STRICT)
    box = outbox(discipline=discipline)
    some = [
        QueueEntry(1, 1, time % 3, time, expires_ms=100 - time, number=time)
        for time in range(1, 13)
    ]
    for each in some:
        box.put(each)
    assert box.take(1, 0) == [some[1]], "the first of importance 2"
    discipline.change(LAXITY)
    assert box.take(1, 0) == [some[11]]
    discipline.change(WEIGHTED_FAIR)
    assert len(box.take(2, 0)) == 2
    box.check_invariants()
    assert any(each.deficit for each in box._bins)
    discipline.change(FIFO)
    box.peek(0)
    assert not any(each.deficit for each in box._bins), "old accounts are closed"
    left = box.take(ALL, 0)
    assert [each.queued_ms for each in left] == sorted(each.queued_ms for each in left)
    assert len(left) == 8


@pytest.mark.parametrize("wanted", [1, 1_400, 65_536])
def test_shares_follow_weights_whatever_is_asked_for(wanted: int) -> None:
    """Small events in long runs against large ones, refilled as they go."""
    weights = [1, 1, 1, 2, 1, 4, 1, 1]
    box = outbox(bytes_limit=1 << 30, discipline=Discipline(WEIGHTED_FAIR, weights))
    sent = [0] * IMPORTANCES
    while sum(sent) < 4_000_000:
        waiting = box.bytes_waiting()
        if waiting[3] < 100_000:
            box.put(letters(100, 600))
        if waiting[5] < 100_000:
            box.put(parcel(70_000, importance=5))
        if waiting[2] < 100_000:
            for _ in range(100):
                box.put(parcel(1_000, importance=2))
        for each in box.take(wanted, 0):
            sent[each.importance] += each.size
    whole = sum(sent)
    assert sent[2] / whole == pytest.approx(1 / 7, rel=0.05)
    assert sent[3] / whole == pytest.approx(2 / 7, rel=0.05)
    assert sent[5] / whole == pytest.approx(4 / 7, rel=0.05)


class Plain:
    """What an outbox is to do, in two lists and without any hurry."""

    def __init__(self, bytes_limit: int, tracked_limit: int, tracked_bytes_limit: int) -> None:
        self.bytes_limit = bytes_limit
        self.tracked_limit = tracked_limit
        self.tracked_bytes_limit = tracked_bytes_limit
        self.strategy = STRICT
        self.untracked: list[QueueEntry] = []
        self.tracked: list[QueueEntry] = []
        self.order: dict[QueueEntry, int] = {}  # among equals
        self.weights = [1] * IMPORTANCES

    def change(self, strategy: int, weights: list[int]) -> None:
        self.weights = weights
        if self.strategy == LAXITY != strategy:
            self.order = {each: each.number for each in [*self.untracked, *self.tracked]}
        self.strategy = strategy

    def queue(self, parcels: list[QueueEntry], number: int) -> list[QueueEntry]:
        """The parcels of a bin in the order of their lane."""
        by_due = self.strategy == LAXITY
        return sorted(
            (each for each in parcels if each.bin == number),
            key=lambda each: (due_ms(each) if by_due else 0, self.order[each]),
        )

    def put(self, newcomer: QueueEntry) -> list[QueueEntry]:
        if newcomer.size > self.bytes_limit:
            return [newcomer]
        self.order[newcomer] = newcomer.number
        self.untracked.append(newcomer)
        return self.shed()

    def shed(self) -> list[QueueEntry]:
        shed: list[QueueEntry] = []
        while size_of(self.untracked) > self.bytes_limit:
            numbers = sorted({each.bin for each in self.untracked})
            if self.strategy == WEIGHTED_FAIR:
                numbers.sort(key=self.excess, reverse=True)
            lane = self.queue(self.untracked, numbers[0])
            is_idle = self.strategy == LAXITY and not lane[-1].expires_ms
            shed.append(lane[-1] if is_idle else lane[0])
            self.untracked.remove(shed[-1])
        return shed

    def excess(self, number: int) -> Fraction:
        """What waits in a bin, for its weight."""
        return Fraction(size_of(self.queue(self.untracked, number)), self.weights[number >> 1])

    def gives_way(self, each: QueueEntry, newcomer: QueueEntry) -> bool:
        if self.strategy != WEIGHTED_FAIR or each.importance == newcomer.importance:
            return each.importance < newcomer.importance
        own = newcomer.size + size_of(
            [other for other in self.tracked if other.importance == newcomer.importance]
        )
        its = size_of(self.queue(self.tracked, each.bin))
        return its * self.weights[newcomer.importance] > own * self.weights[each.importance]

    def put_tracked(self, newcomer: QueueEntry, *, is_promised: bool) -> list[QueueEntry]:
        self.order[newcomer] = newcomer.number
        most = max(self.tracked_limit, len(self.tracked))
        most_bytes = max(self.tracked_bytes_limit, size_of(self.tracked))
        refused = self.refuse(newcomer, [*self.tracked, newcomer], most, most_bytes, is_promised)
        self.tracked = [each for each in [*self.tracked, newcomer] if each not in refused]
        return refused

    def refuse(
        self,
        newcomer: QueueEntry,
        left: list[QueueEntry],
        most: int,
        most_bytes: int,
        is_promised: bool,
    ) -> list[QueueEntry]:
        refused: list[QueueEntry] = []
        while not is_promised and (len(left) > most or size_of(left) > most_bytes):
            lesser = [each for each in left if self.gives_way(each, newcomer)]
            if not lesser:
                return [newcomer]
            refused.append(self.queue(lesser, min(each.bin for each in lesser))[-1])
            left = [each for each in left if each is not refused[-1]]
        return refused

    def resize(
        self, parcel: QueueEntry, old_size: int, is_tracked: bool, is_moved: bool, latest: int
    ) -> list[QueueEntry]:
        """The parcel itself has its new size and due time already."""
        if is_moved and self.strategy == LAXITY:
            self.order[parcel] = latest
        if not is_tracked:
            if parcel.size <= self.bytes_limit:
                return self.shed()
            self.untracked.remove(parcel)
            return [parcel]
        before = size_of(self.tracked) - parcel.size + old_size
        most_bytes = max(self.tracked_bytes_limit, before)
        refused = self.refuse(parcel, self.tracked, len(self.tracked), most_bytes, False)
        self.tracked = [each for each in self.tracked if each not in refused]
        return refused

    def nexts(self, window: int) -> list[QueueEntry]:
        """What may go next: one parcel, or one of each lane where shares decide."""
        heads: list[tuple[QueueEntry, bool]] = []
        for number in reversed(range(BINS)):
            lanes = [(self.queue(self.untracked, number)[:1], False)]
            if window > 0:
                lanes.insert(0, (self.queue(self.tracked, number)[:1], True))
            both = [(lane[0], is_tracked) for lane, is_tracked in lanes if lane]
            if both:
                heads.append(min(both, key=lambda each: self.rank(each[0])))
        if self.strategy == WEIGHTED_FAIR or not heads:
            return [each for each, _ in heads]
        if self.strategy == STRICT:
            return [heads[0][0]]
        if self.strategy == LAXITY:
            return [min(heads, key=lambda each: due_ms(each[0]))[0]]
        return [min(heads, key=lambda each: each[0].queued_ms)[0]]

    def rank(self, parcel: QueueEntry) -> tuple[int, int]:
        return (due_ms(parcel) if self.strategy == LAXITY else 0, parcel.queued_ms)


def size_of(parcels: list[QueueEntry]) -> int:
    return sum(each.size for each in parcels)


SIZES: Final = st.integers(1, 12)
BIN_NUMBERS: Final = st.sampled_from([2, 3, 6, 7, 15])  # few, so that they meet
STRATEGIES: Final = st.sampled_from([STRICT, WEIGHTED_FAIR, LAXITY, FIFO])
WAITS: Final = st.sampled_from([0, 0, 1, 3, 9])


class OutboxMachine(RuleBasedStateMachine):
    """Any mix of steps: the same goes, gives way and waits as in a plain one."""

    queued: Bundle[QueueEntry] = Bundle("queued")

    def __init__(self) -> None:
        super().__init__()
        self.discipline = Discipline(STRICT)
        self.box = outbox(60, 8, 50, self.discipline)
        self.plain = Plain(60, 8, 50)
        self.now_ms = 1
        self.number = 1
        self.put_in = self.got_out = 0  # events

    @initialize(strategy=STRATEGIES)
    def start(self, strategy: int) -> None:
        self.switch(strategy, None)

    @rule(target=queued, size=SIZES, bin_=BIN_NUMBERS, wait_ms=WAITS)
    def put(self, size: int, bin_: int, wait_ms: int) -> QueueEntry:
        newcomer = self.newcomer(size, bin_, wait_ms)
        self.leave(self.box.put(newcomer), self.plain.put(newcomer))
        return newcomer

    @rule(each=st.integers(2, 5), count=st.integers(2, 6), importance=st.sampled_from([1, 3, 7]))
    def put_run(self, each: int, count: int, importance: int) -> None:
        self.now_ms += 1
        run = letters(each, count, importance, self.now_ms, self.number + 1)
        self.number += count
        self.put_in += count
        self.leave(self.box.put(run), self.plain.put(run))

    @rule(target=queued, size=SIZES, bin_=BIN_NUMBERS, wait_ms=WAITS, is_promised=st.booleans())
    def put_tracked(self, size: int, bin_: int, wait_ms: int, is_promised: bool) -> QueueEntry:
        newcomer = self.newcomer(size, bin_, wait_ms)
        refused = self.box.put_tracked(newcomer, is_promised=is_promised)
        self.leave(refused, self.plain.put_tracked(newcomer, is_promised=is_promised))
        return newcomer

    @rule(wanted=st.integers(0, 40), window=st.integers(-1, 5))
    def take(self, wanted: int, window: int) -> None:
        begins_with = self.box.peek(window, wanted)
        single = self.box.take_single(wanted, window)
        parcels = self.box.take(wanted, window) if single is None else [single]
        for position, taken in enumerate(parcels):
            assert wanted > 0, "more was taken than wanted"
            possible = self.plain.nexts(window)
            assert position or begins_with in possible
            if taken in possible:
                assert taken.size - wanted < taken.size // taken.count
                window -= self.remove(taken)
            else:
                self.cut(taken, wanted, possible)
            wanted -= taken.size
            self.got_out += taken.count
        assert wanted <= 0 or not self.plain.nexts(window), "less was taken than could go"

    @rule()
    def take_all(self) -> None:
        self.take(ALL, ALL)
        assert self.box.is_empty()

    @rule(parcel=consumes(queued))
    def void(self, parcel: QueueEntry) -> None:
        if self.is_queued(parcel):
            self.box.remove(parcel, parcel in self.plain.tracked)
            self.remove(parcel)
            self.got_out += parcel.count

    @rule(target=queued, parcel=consumes(queued), size=st.integers(1, 70), later_ms=WAITS)
    def resize(
        self, parcel: QueueEntry, size: int, later_ms: int
    ) -> QueueEntry | MultipleResults[QueueEntry]:
        if not self.is_queued(parcel):
            return multiple()
        old_size, is_tracked = parcel.size, parcel in self.plain.tracked
        expires_ms = self.now_ms + later_ms if later_ms else -1
        is_moved = expires_ms not in (-1, parcel.expires_ms)
        gave_way = self.box.resize(parcel, size, is_tracked, expires_ms)
        assert parcel.size == size
        self.number += 1
        expected = self.plain.resize(parcel, old_size, is_tracked, is_moved, self.number)
        self.leave(gave_way, expected)
        return parcel

    @rule()
    def expire(self) -> None:
        expired = self.box.expire(self.now_ms)
        waiting = [*self.plain.untracked, *self.plain.tracked]
        assert set(expired) == {each for each in waiting if 0 < each.expires_ms <= self.now_ms}
        for each in expired:
            self.remove(each)
            self.got_out += each.count

    @precondition(lambda self: self.plain.untracked)
    @rule()
    def drop(self) -> None:
        dropped = self.box.drop_untracked()
        assert set(dropped) == set(self.plain.untracked)
        self.plain.untracked = []
        self.got_out += sum(each.count for each in dropped)

    @rule(
        strategy=STRATEGIES,
        weights=st.none() | st.lists(st.integers(1, 9), min_size=8, max_size=8),
    )
    def switch(self, strategy: int, weights: list[int] | None) -> None:
        self.discipline.change(strategy, weights)
        # It follows when it is next asked for something.
        self.box.peek(0)
        self.plain.change(strategy, self.discipline.weights)

    @invariant()
    def counts_agree(self) -> None:
        box, plain = self.box, self.plain
        box.check_invariants()
        assert box.bytes == size_of(plain.untracked)
        assert (box.tracked, box.tracked_bytes) == (len(plain.tracked), size_of(plain.tracked))
        assert sum(box.bytes_waiting()) == box.bytes + box.tracked_bytes
        assert self.put_in == self.got_out + sum(box.depth())
        assert box.is_empty() == (not plain.untracked and not plain.tracked)

    def newcomer(self, size: int, bin_: int, wait_ms: int) -> QueueEntry:
        self.now_ms += wait_ms
        expires_ms = self.now_ms + 20 - size if size % 2 else 0
        self.number += 1
        self.put_in += 1
        return QueueEntry(size, 1, bin_ >> 1, self.now_ms, expires_ms, self.number, bin_)

    def leave(self, gave_way: list[QueueEntry] | None, expected: list[QueueEntry]) -> None:
        assert (gave_way or []) == expected
        self.got_out += sum(each.count for each in expected)

    def is_queued(self, parcel: QueueEntry) -> bool:
        return parcel in self.plain.untracked or parcel in self.plain.tracked

    def remove(self, parcel: QueueEntry) -> int:
        """Gives how much of the window it needs."""
        if parcel in self.plain.tracked:
            self.plain.tracked.remove(parcel)
            return 1
        self.plain.untracked.remove(parcel)
        return 0

    def cut(self, first: QueueEntry, wanted: int, possible: list[QueueEntry]) -> None:
        """What was taken is the beginning of a run: the rest stands in its place."""
        (run,) = [each for each in possible if each.number == first.number]
        assert isinstance(run, MessageRun)
        parts = run.split(wanted, ANY_NUMBER)
        assert parts is not None
        assert (parts[0].size, parts[0].count) == (first.size, first.count)
        assert first.size - wanted < run.size // run.count
        lanes = [each.untracked.waiting() for each in self.box._bins]
        number = run.number + first.count
        (rest,) = [each for lane in lanes for each in lane if each.number == number]
        assert (rest.size, rest.count) == (parts[1].size, parts[1].count)
        self.plain.order[rest] = self.plain.order[run]
        self.plain.untracked[self.plain.untracked.index(run)] = rest


TestAnyMixOfSteps = OutboxMachine.TestCase
TestAnyMixOfSteps.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_under_weighted_fair_a_full_queue_keeps_everybodys_share() -> None:
    outbox = Outbox(
        bytes_limit=9_000,
        tracked_limit=9,
        tracked_bytes_limit=900,
        discipline=Discipline(WEIGHTED_FAIR),
    )
    for _ in range(30):
        outbox.put(EventRun(b"x" * 500, 1, 3, 0))
        outbox.put(EventRun(b"y" * 500, 1, 1, 0))
    outbox.check_invariants()
    waiting = outbox.bytes_waiting()
    assert sum(waiting) <= 9_000
    # Weights are 8 and 2.
    assert waiting[1] in range(1_500, 2_501)


def test_who_had_the_link_alone_has_saved_up_nothing() -> None:
    discipline = Discipline(WEIGHTED_FAIR)
    outbox = Outbox(
        bytes_limit=1 << 20, tracked_limit=9, tracked_bytes_limit=900, discipline=discipline
    )
    for _ in range(100):
        outbox.put(EventRun(b"n" * 900, 1, 3, 0))
    for _ in range(20):
        outbox.put(EventRun(b"i" * 1_000, 1, 5, 0))
        (parcel,) = outbox.take(1, 0)
        assert isinstance(parcel, EventRun)
        assert parcel.frames.startswith(b"i"), "it comes seldom, so it goes at once"
        outbox.take(1, 0)
        outbox.take(1, 0)


@pytest.mark.parametrize(
    ("strategy", "events"),
    [
        (STRICT, {3: 4, 6: 1}),
        (WEIGHTED_FAIR, {3: 4, 6: 1}),
        (FIFO, {1: 1, 3: 4}),
        (LAXITY, {3: 4, 6: 1, 2: 1}),
    ],
)
def test_what_goes_before_an_event(strategy: int, events: dict[int, int]) -> None:
    box = outbox(discipline=Discipline(strategy))
    found = QueueEntry(10, 2, 3, 5, number=700)
    for each in (
        QueueEntry(7, 3, 3, 4, number=500),
        QueueEntry(1, 1, 1, 4, number=510),
        QueueEntry(1, 1, 2, 6, expires_ms=90, number=520),
        found,
        QueueEntry(9, 1, 3, 6, number=800),
        QueueEntry(2, 1, 6, 7, number=900),
    ):
        box.put(each)
    box.put_tracked(QueueEntry(4, 1, 3, 5, number=600))
    assert box.find(700) is box.find(701) is found
    assert box.find(702) is None
    counts, sizes = box.ahead_of(found)
    assert {importance: count for importance, count in enumerate(counts) if count} == events
    assert sizes[3] == 11
