"""Writing within limits, in virtual time: transport, clock and timers are ours."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import cast

import pytest

from accord.core.broker.connection import Connection
from accord.core.scheduling.link_estimator import LinkEstimator
from accord.core.scheduling.outbox import Outbox
from accord.core.scheduling.pacing import Gate, Pacer
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.strategies import FIFO, STRICT, WEIGHTED_FAIR, Discipline
from accord.runtime import connection_writer
from accord.runtime.connection_writer import MAX_PACERS, ConnectionWriter, NodeBandwidth
from accord.runtime.socket_gauge import BandwidthLimits

S = 1_000_000


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Timeline:
    def __init__(self) -> None:
        self.now_us = 10 * S
        self._calls: list[tuple[int, int, Timer, Callable[[], None]]] = []
        self._number = 0

    def later(self, wait_us: int, call: Callable[[], None]) -> Timer:
        timer = Timer()
        self._number += 1
        heapq.heappush(self._calls, (self.now_us + max(wait_us, 0), self._number, timer, call))
        return timer

    def run(self, duration_us: int) -> None:
        until_us = self.now_us + duration_us
        while self._calls and self._calls[0][0] <= until_us:
            self.now_us, _, timer, call = heapq.heappop(self._calls)
            if not timer.is_cancelled:
                call()
        self.now_us = until_us

    @property
    def pending(self) -> int:
        return sum(not timer.is_cancelled for _, _, timer, _ in self._calls)


class Client:
    """A connection with events that wait, and a transport that carries `rate_bps`; 0: anything."""

    def __init__(
        self, timeline: Timeline, bandwidth: NodeBandwidth, name: str, *, rate_bps: int = 0
    ) -> None:
        self.timeline = timeline
        self.client_id = name
        self.link = LinkEstimator()
        self.rate_bps = rate_bps
        self.outbox = Outbox(
            bytes_limit=1 << 40,
            tracked_limit=0,
            tracked_bytes_limit=0,
            discipline=bandwidth.egress.discipline,
        )
        self.answers: list[bytes] = []
        self.written: list[tuple[int, int]] = []  # when, how much
        self.importances: list[int] = []  # of events, in the order of writing
        self._drained_us = timeline.now_us
        self._bandwidth = bandwidth
        self.sender = ConnectionWriter(
            bandwidth,
            cast("Connection", self),
            cast("asyncio.Transport", self),
            self,
        )

    def put(self, count: int, size: int, importance: int = 3) -> None:
        for _ in range(count):
            self.outbox.put(QueueEntry(size, 1, importance, 0))

    def resume_sending(self) -> None:
        self.sender.send()
        self._bandwidth.pump()

    def sent(self, since_us: int = 0) -> int:
        return sum(size for at_us, size in self.written if at_us >= since_us)

    def failed(self, error: Exception) -> None:
        raise error

    def write(self, frames: list[bytes]) -> int:
        size = sum(map(len, frames))
        self.written.append((self.timeline.now_us, size))
        if self.rate_bps:
            start_us = max(self._drained_us, self.timeline.now_us)
            self._drained_us = start_us + size * 8 * S // self.rate_bps
        return size

    # As a transport.

    def get_extra_info(self, _: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return max(self._drained_us - self.timeline.now_us, 0) * self.rate_bps // (8 * S)

    # As a connection.

    def take(self, bytes_wanted: int) -> list[bytes]:
        return self.take_uncounted(bytes_wanted)

    def count_taken(self) -> None:
        pass

    @property
    def has_more(self) -> bool:
        return not self.outbox.is_empty()

    def take_uncounted(self, bytes_wanted: int) -> list[bytes]:
        frames, self.answers = self.answers, []
        gate = self.link.gate
        taken: list[QueueEntry] = []
        if bytes_wanted and gate is not None:
            taken = self.outbox.take_admitted(bytes_wanted, 0, gate)
        elif bytes_wanted:
            taken = self.outbox.take(bytes_wanted, 0)
        self.importances += [each.importance for each in taken]
        return frames + [bytes(each.size) for each in taken]

    def peek(self, gate: Gate | None) -> QueueEntry | None:
        return self.outbox.peek(0, 1, gate)

    def has_waiting(self) -> bool:
        return bool(self.answers or self.outbox.bytes)


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    timeline = Timeline()
    monkeypatch.setattr(connection_writer, "clock_us", lambda: timeline.now_us)
    monkeypatch.setattr(connection_writer, "_later", timeline.later)
    return timeline


def make_bandwidth(discipline: Discipline | None = None) -> NodeBandwidth:
    def go_on() -> None:
        bandwidth.pump()

    bandwidth = NodeBandwidth(discipline or Discipline(), go_on)
    return bandwidth


def test_without_limits_everything_goes_at_once_and_no_timer_is_set(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    client = Client(timeline, bandwidth, "a")
    client.link.set_path(65_483, 30)  # as on loopback
    for _ in range(5):
        client.put(600, 1_000)
        client.resume_sending()
        timeline.run(500)
    assert client.sent() == 3_000_000
    assert timeline.pending == 0


def test_where_segments_are_small_it_takes_some_milliseconds(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    client = Client(timeline, bandwidth, "a")
    client.link.set_path(1_448, 200)
    client.put(5_000, 1_000)
    client.resume_sending()
    timeline.run(20_000)
    assert client.sent() == 5_000_000
    assert timeline.pending == 0


def test_a_client_gets_its_limit_and_no_burst(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(client_bps=300_000))
    client = Client(timeline, bandwidth, "a")
    timeline.run(5 * S)
    client.put(1_000, 1_000)
    client.resume_sending()
    assert client.sent() <= 3_000
    timeline.run(10 * S)
    assert abs(client.sent() * 8 - 10 * 300_000) < 3_000 * 8
    assert client.link.limit_bps == 300_000


def test_nothing_to_send_no_timer(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(node_bps=500_000, client_bps=300_000))
    client = Client(timeline, bandwidth, "a")
    client.put(1, 1_000)
    client.resume_sending()
    timeline.run(S)
    assert client.sent() == 1_000
    assert timeline.pending == 0


def test_answers_go_at_once_and_count(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(client_bps=80_000))
    client = Client(timeline, bandwidth, "a")
    client.put(100, 10_000)
    client.resume_sending()
    assert client.sent() == 10_000
    for pings in range(1, 8):
        client.answers = [bytes(2)]
        client.resume_sending()
        assert client.sent() == 10_000 + 2 * pings
        timeline.run(100_000)
    assert client.sent() == 10_014, "the event is still being made up for"
    timeline.run(300_000)
    assert client.sent() == 20_014


def test_many_answers_hold_up_events_for_a_moment(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(client_bps=80_000))
    client = Client(timeline, bandwidth, "a")
    client.resume_sending()
    client.answers = [bytes(5_000)]
    client.resume_sending()
    client.put(1, 1_000)
    client.resume_sending()
    assert client.sent() == 5_000
    timeline.run(100_000)
    assert client.sent() == 6_000


def test_single_limits_count_rather_than_that_of_all(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(client_bps=100_000, clients={"b": 400_000, "c": 0}))
    clients = [Client(timeline, bandwidth, name) for name in "abc"]
    for client in clients:
        client.put(1_000, 1_000)
        client.resume_sending()
    timeline.run(8 * S)
    assert abs(clients[0].sent() - 100_000) < 3_000
    assert abs(clients[1].sent() - 400_000) < 3_000
    assert clients[2].sent() == 1_000_000


def test_a_name_that_becomes_known_later_has_its_limit_then(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(clients={"a": 80_000}))
    client = Client(timeline, bandwidth, "")
    client.answers = [bytes(4)]
    client.resume_sending()
    client.client_id = "a"
    client.put(100, 1_000)
    client.resume_sending()
    timeline.run(S)
    assert client.sent() < 13_000


def test_who_connects_again_has_the_same_limit_still(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(client_bps=80_000))
    for _ in range(2):
        client = Client(timeline, bandwidth, "a")
        client.put(1, 200_000)
        client.resume_sending()
        timeline.run(S)
        client.sender.stop()
    assert client.sent() == 0
    others = [Client(timeline, bandwidth, f"b{number}") for number in range(200)]
    for other in others:
        other.resume_sending()
    again = Client(timeline, bandwidth, "a")
    again.put(1, 200_000)
    again.resume_sending()
    timeline.run(27 * S)
    assert again.sent() == 0
    timeline.run(4 * S)
    assert again.sent() == 200_000


def test_only_so_many_clients_are_remembered_that_exceeded_their_limit() -> None:
    bandwidth = make_bandwidth()

    def exceed(client: str) -> Pacer:
        pacer = bandwidth.pacer_of(client, 1_000)
        pacer.sent(10_000_000, connection_writer.clock_us())
        return pacer

    first = exceed("a")
    for number in range(2 * MAX_PACERS):
        last = exceed(f"b{number}")
    assert bandwidth.pacer_of(f"b{number}", 1_000) is last
    assert bandwidth.pacer_of("a", 1_000) is not first


def test_new_limits_count_at_once(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(client_bps=8_000))
    client = Client(timeline, bandwidth, "a")
    client.put(1_000, 10_000)
    client.resume_sending()
    timeline.run(S)
    assert client.sent() == 10_000
    bandwidth.set_limits(BandwidthLimits(client_bps=800_000))
    client.resume_sending()
    timeline.run(S)
    assert abs(client.sent() - 110_000) <= 10_000
    bandwidth.set_limits(BandwidthLimits(node_bps=80_000))
    client.resume_sending()
    bandwidth.pump()
    before = client.sent()
    timeline.run(S)
    assert abs(client.sent() - before - 10_000) <= 10_000
    bandwidth.set_limits(BandwidthLimits())
    client.resume_sending()
    timeline.run(50_000)
    assert client.outbox.is_empty()
    assert client.link.limit_bps == 0


def test_client_limits_hold_within_that_of_the_node_and_none_is_wasted(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(node_bps=800_000, clients={"slow": 100_000}))
    slow, fast = (Client(timeline, bandwidth, name) for name in ("slow", "fast"))
    for client in (slow, fast):
        client.put(2_000, 1_000)
        client.resume_sending()
    timeline.run(8 * S)
    assert 90_000 < slow.sent() < 103_000, "it waits for its turn, and does not make up for that"
    assert abs(slow.sent() + fast.sent() - 800_000) < 5_000


def test_the_node_s_limit_is_kept_over_any_time(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(node_bps=400_000))
    clients = [Client(timeline, bandwidth, name) for name in "abc"]
    for round_ in range(20):
        for client in clients:
            client.put(3, 2_000 + 500 * round_)
            client.resume_sending()
        timeline.run(S // 3)
    written = sorted(each for client in clients for each in client.written)
    beyond, before_us = 0.0, 0
    for at_us, size in written:
        beyond = max(beyond - (at_us - before_us) * 400_000 / (8 * S), 0) + size
        before_us = at_us
        assert beyond <= 2_500 + 12_000, "a portion and one event"


def test_strict_the_important_goes_first_whoever_it_is_for(timeline: Timeline) -> None:
    bandwidth = make_bandwidth(Discipline(STRICT))
    bandwidth.set_limits(BandwidthLimits(node_bps=800_000))
    usual, important = (Client(timeline, bandwidth, name) for name in "ab")
    usual.put(1_000, 1_000)
    usual.resume_sending()
    timeline.run(S)
    important.put(50, 1_000, importance=6)
    important.resume_sending()
    began_us = timeline.now_us
    timeline.run(S // 2)
    assert important.sent() >= 49_000
    assert usual.sent(began_us) <= 2_000
    timeline.run(S)
    assert usual.sent(began_us) > 90_000


@pytest.mark.parametrize("strategy", [STRICT, WEIGHTED_FAIR])
def test_what_one_client_got_does_not_delay_what_is_important_for_another(
    timeline: Timeline, strategy: int
) -> None:
    bandwidth = make_bandwidth(Discipline(strategy))
    bandwidth.set_limits(BandwidthLimits(node_bps=300_000, clients={"d": 200_000}))
    clients = [Client(timeline, bandwidth, name) for name in "abcd"]
    for client in clients:
        client.put(2, 300_000)
        client.resume_sending()
    for _ in range(100):
        timeline.run(2 * S)
        for client in clients:
            sent = len(client.importances)
            client.put(1, 41, importance=6)
            client.resume_sending()
            timeline.run(S // 8)
            assert client.importances[sent:].count(6) == 1
    assert all(client.importances.count(3) == 2 for client in clients)
    written = sorted(each for client in clients for each in client.written)
    for number, (at_us, _) in enumerate(written):
        window = [size for us, size in written[: number + 1] if us > at_us - 30 * S]
        assert sum(window) <= 300_000 * 30 / 8
    assert timeline.pending == 0


@pytest.mark.parametrize("strategy", [STRICT, WEIGHTED_FAIR])
@pytest.mark.parametrize(
    "limits", [BandwidthLimits(node_bps=300_000), BandwidthLimits(client_bps=300_000)]
)
def test_a_burst_of_what_is_important_passes_what_waits_for_room(
    timeline: Timeline, strategy: int, limits: BandwidthLimits
) -> None:
    weights = [1, 1, 1, 1_000_000, 1, 1, 1, 1]  # under weighted fair the turn is the image's
    bandwidth = make_bandwidth(Discipline(strategy, weights))
    bandwidth.set_limits(limits)
    client = Client(timeline, bandwidth, "a")
    client.put(2, 900_000)
    client.resume_sending()
    timeline.run(S)
    for _ in range(4):
        sent = len(client.importances)
        client.put(8, 300, importance=6)  # 64 ms at the limit
        client.resume_sending()
        timeline.run(S // 4)
        assert client.importances[sent:] == [6] * 8
    timeline.run(40 * S)
    assert client.importances.count(3) == 2


@pytest.mark.parametrize("strategy", [STRICT, WEIGHTED_FAIR])
def test_what_is_important_for_one_does_not_wait_for_what_is_large_for_another(
    timeline: Timeline, strategy: int
) -> None:
    weights = [1, 1, 1, 1_000_000, 1, 1, 1, 1]  # under weighted fair the turn is the others'
    bandwidth = make_bandwidth(Discipline(strategy, weights))
    bandwidth.set_limits(BandwidthLimits(node_bps=300_000))
    one, other = (Client(timeline, bandwidth, name) for name in "ab")
    for client in (other, one):
        client.put(1, 900_000)
        client.resume_sending()
    timeline.run(26 * S)  # the first is made up for, the second waits for room
    other.put(20, 1_200)
    other.put(8, 300, importance=6)
    other.resume_sending()
    timeline.run(S // 4)
    assert (one.importances, other.importances[:9]) == ([], [3] + [6] * 8)
    timeline.run(60 * S)
    assert (one.importances.count(3), other.importances.count(3)) == (1, 21)


def test_first_come_what_is_important_waits_like_all_others(timeline: Timeline) -> None:
    bandwidth = make_bandwidth(Discipline(FIFO))
    bandwidth.set_limits(BandwidthLimits(node_bps=300_000))
    one, other = (Client(timeline, bandwidth, name) for name in "ab")
    one.put(2, 900_000)
    one.resume_sending()
    timeline.run(26 * S)
    for queued_ms, importance in ((26_000, 3), (26_001, 6)):
        other.outbox.put(QueueEntry(300, 1, importance, queued_ms))
    other.resume_sending()
    timeline.run(S)
    assert other.importances == []
    timeline.run(60 * S)
    assert other.importances == [3, 6]


def test_weighted_fair_by_bytes_over_all_destinations(timeline: Timeline) -> None:
    weights = [1, 1, 1, 1, 1, 1, 4, 1]
    bandwidth = make_bandwidth(Discipline(WEIGHTED_FAIR, weights))
    bandwidth.set_limits(BandwidthLimits(node_bps=800_000))
    large, small, important = (Client(timeline, bandwidth, name) for name in "abc")
    large.put(200, 9_000, importance=2)
    small.put(5_000, 300, importance=2)
    important.put(1_000, 1_200, importance=6)
    for client in (large, small, important):
        client.resume_sending()
    timeline.run(8 * S)
    total = large.sent() + small.sent() + important.sent()
    assert abs(total - 800_000) < 10_000
    assert abs(important.sent() / total - 0.8) < 0.02
    assert abs(large.sent() - small.sent()) < 10_000


def test_a_slow_link_holds_little_and_others_take_the_rest(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(node_bps=1_000_000))
    slow = Client(timeline, bandwidth, "slow", rate_bps=100_000)
    fast = Client(timeline, bandwidth, "fast")
    for client in (slow, fast):
        client.put(5_000, 1_000)
        client.resume_sending()
    timeline.run(10 * S)
    assert slow.get_write_buffer_size() < 8_000
    slow_before, fast_before = slow.sent(), fast.sent()
    timeline.run(10 * S)
    assert abs((slow.sent() - slow_before) * 8 - 1_000_000) < 60_000
    assert abs((fast.sent() - fast_before) * 8 - 9_000_000) < 60_000
    assert slow.link.rate_bps == pytest.approx(100_000, rel=0.1)


def test_a_full_transport_is_not_written_to(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    client = Client(timeline, bandwidth, "a")
    client.put(10, 1_000)
    client.answers = [b"answer"]
    client.sender.is_paused = True
    client.resume_sending()
    bandwidth.set_limits(BandwidthLimits(node_bps=800_000))
    client.resume_sending()
    assert client.sent() == 0
    client.sender.is_paused = False
    client.resume_sending()
    timeline.run(S)
    assert client.sent() == 10_006


def test_after_the_end_nothing_is_sent_and_nothing_waits(timeline: Timeline) -> None:
    bandwidth = make_bandwidth()
    bandwidth.set_limits(BandwidthLimits(node_bps=8_000, client_bps=8_000))
    client = Client(timeline, bandwidth, "a")
    client.put(10, 1_000)
    client.resume_sending()
    sent = client.sent()
    client.sender.stop()
    assert bandwidth.egress.waiting == 0
    timeline.run(20 * S)
    assert client.sent() == sent
