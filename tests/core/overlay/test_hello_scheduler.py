from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.overlay_network import OverlayNetwork

from accord.core.overlay.liveness import (
    PING_BYTES,
    HelloScheduler,
    LivenessOptions,
    NeighbourLiveness,
    Ping,
    Pong,
    intervals,
    pong_for,
)
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent

MS = 1_000
S = 1_000_000


def hello(pings_per_s: float = 0, *, ping_us: int = S) -> HelloScheduler:
    allowance = int(pings_per_s * PING_BYTES)
    return HelloScheduler(
        ping_us=ping_us, misses=3, delivery_timeout_us=60 * S, bytes_per_s=allowance
    )


def test_while_the_allowance_suffices_all_are_pinged_as_often_as_wanted() -> None:
    planned = hello(10).plan({f"n{number}": number for number in range(10)}, {"n1": None}, 0)
    assert list(planned.values()) == [S] * 10


def test_where_it_does_not_who_matters_is_pinged_more_often() -> None:
    latencies = {"used": 90, "far": 80, "near": 10, "nearer": 5}
    planned = hello(2).plan(latencies, {"used": None}, 0)
    assert planned["used"] == S, "it would have more than the highest rate"
    assert planned["near"] == planned["nearer"]
    assert planned["far"] == pytest.approx(2 * planned["near"], abs=2)
    total = sum(S / each for each in planned.values())
    assert total == pytest.approx(2, abs=0.01)


def test_a_failure_is_seen_in_time_whatever_the_allowance() -> None:
    planned = hello(0.01).plan(dict.fromkeys("abcdef", 10), {"a": None}, 0)
    assert list(planned.values()) == [15 * S] * 6, "three missed ones within a minute"
    slow = hello(0.01, ping_us=30 * S).plan({"a": 1}, {}, 0)
    assert slow == {"a": 30 * S}, "but no more often than wanted"


def test_it_plans_once_a_second_and_never_without_an_allowance() -> None:
    free, bound = hello(), hello(1)
    assert not free.is_due(5 * S)
    assert free.next_due_us() is None
    assert bound.is_due(0)
    assert bound.plan({}, {}, 5 * S) == {}
    assert not bound.is_due(6 * S - 1)
    assert bound.next_due_us() == 6 * S
    assert bound.is_due(6 * S)
    with pytest.raises(ValueError, match="expected 0 or more"):
        HelloScheduler(ping_us=S, misses=3, delivery_timeout_us=S, bytes_per_s=-1)


@given(
    st.lists(st.sampled_from([1, 2, 8, 16]), max_size=40),
    st.integers(10 * MS, 5 * S),
    st.integers(5 * S, 60 * S),
    st.floats(0.01, 1_000),
)
def test_rates_are_within_bounds_and_the_allowance(
    found: list[int], ping_us: int, longest_us: int, pings_per_s: float
) -> None:
    weights = {f"n{number}": weight for number, weight in enumerate(found)}
    planned = intervals(
        weights, ping_us=ping_us, max_interval_us=longest_us, pings_per_s=pings_per_s
    )
    assert list(planned) == list(weights)
    assert all(ping_us <= each <= longest_us for each in planned.values())
    total = sum(S / each for each in planned.values())
    least = len(weights) * S / longest_us
    assert total <= max(pings_per_s, least) * 1.001
    full = len(weights) * S / ping_us
    assert total >= min(pings_per_s, full) * 0.98 or total >= least * 0.999
    for name, weight in weights.items():
        assert all(
            planned[name] <= planned[other]
            for other, lighter in weights.items()
            if lighter <= weight
        )


def paced(interval_us: int) -> NeighbourLiveness:
    pulse = NeighbourLiveness("denver", LivenessOptions(ping_us=S), lambda: 0.0, 0)
    pulse.link_up(0)
    pulse.advance(0)
    pulse.on_pong(pong_for(pulse.sends.pop()), 50 * MS)
    pulse.set_interval(interval_us)
    return pulse


def pings(pulse: NeighbourLiveness, from_us: int, until_us: int, *, answered: bool) -> list[int]:
    """When pings go out."""
    sent = []
    now_us = from_us
    while (due_us := pulse.next_due_us()) is not None and due_us <= until_us:
        now_us = max(now_us, due_us)
        pulse.advance(now_us)
        pulse.check_invariants()
        for ping in pulse.sends:
            sent.append(now_us)
            if answered:
                pulse.on_pong(pong_for(ping), now_us)
        pulse.sends.clear()
    return sent


def test_a_slower_pace_counts_from_the_next_ping_on() -> None:
    pulse = paced(10 * S)
    assert pings(pulse, 0, 35 * S, answered=True) == [S, 11 * S, 21 * S, 31 * S]


def test_a_quicker_pace_counts_at_once() -> None:
    pulse = paced(10 * S)
    assert pings(pulse, 0, 12 * S, answered=True) == [S, 11 * S]
    pulse.set_interval(2 * S)
    assert pulse.next_due_us() == 13 * S
    pulse.set_interval(1)
    assert pulse.interval_us == S, "no quicker than wanted"
    assert pulse.next_due_us() == 12 * S


def test_from_the_first_miss_on_it_is_pinged_at_the_full_rate() -> None:
    pulse = paced(15 * S)
    assert pings(pulse, 0, 20 * S, answered=True) == [S, 16 * S]
    sent = pings(pulse, 20 * S, 60 * S, answered=False)
    assert sent == [31 * S, 32 * S, 33 * S, 34 * S, 49 * S], "and then it is dead"
    assert not pulse.is_up


def test_an_answer_ends_the_suspicion() -> None:
    pulse = paced(15 * S)
    pings(pulse, 0, 20 * S, answered=True)
    sent = pings(pulse, 20 * S, 32 * S, answered=False)
    assert len(sent) == 2
    assert pulse.is_up
    assert pings(pulse, 32 * S, 70 * S, answered=True) == [33 * S, 34 * S, 49 * S, 64 * S]


class Hub:
    """A node with many neighbours, which only answer pings, after what their way takes."""

    def __init__(self, leaves: int, pings_per_s: float) -> None:
        options = OverlayOptions(ping_us=S, ping_bytes_per_s=int(pings_per_s * PING_BYTES))
        self.overlay = Overlay("hub", 1, options, lambda: 0.5, lambda *_: None)
        self.rtts_us = {f"leaf{number:02}": (10 + 2 * number) * MS for number in range(leaves)}
        self.pings = dict.fromkeys(self.rtts_us, 0)
        self.now_us = 0
        self.used = ""  # events go there
        self._answers: list[tuple[int, str, Pong]] = []
        for name in self.rtts_us:
            self.overlay.link_up(name, 0)

    def run(self, time_us: int) -> None:
        until_us = self.now_us + time_us
        while self.now_us < until_us:
            dues = [self.overlay.next_due_us(), *(each[0] for each in self._answers)]
            self.now_us = max(self.now_us, min(*dues, until_us))
            for due in sorted(each for each in self._answers if each[0] <= self.now_us):
                self._answers.remove(due)
                self.overlay.receive(due[1], due[2], self.now_us)
            if self.used:
                self.overlay.forward(self.used, TransitEvent("hub", 1, 1, (), "uav", b"x"))
                self.overlay.take(self.used, 10_000, self.now_us)
            self.overlay.advance(self.now_us)
            self._send()

    def _send(self) -> None:
        for name, message in self.overlay.sends:
            if isinstance(message, Ping):
                self.pings[name] += 1
                rtt_us = self.rtts_us.get(name, -1)
                if rtt_us >= 0:
                    self._answers.append((self.now_us + rtt_us, name, pong_for(message)))
        self.overlay.sends.clear()

    def counted(self, time_us: int) -> dict[str, int]:
        """How many pings each gets in that time."""
        before = dict(self.pings)
        self.run(time_us)
        return {name: count - before[name] for name, count in self.pings.items()}


def test_a_hub_keeps_its_allowance_and_pings_who_is_in_use() -> None:
    hub = Hub(20, 5)
    hub.used = "leaf19"
    hub.run(30 * S)
    sent = hub.counted(100 * S)
    assert sum(sent.values()) < 5 * 100 * 1.12, "pings go out up to a tenth early"
    assert sum(sent.values()) > 5 * 100 * 0.95
    assert sent["leaf19"] >= 100
    assert min(sent.values()) >= 6, "a failure is seen in time"
    assert sent["leaf00"] > 1.5 * sent["leaf18"], "near before far"
    hub.used = "leaf18"
    hub.run(5 * S)
    sent = hub.counted(50 * S)
    assert sent["leaf18"] >= 50, "another one now"
    assert sent["leaf19"] < 20
    hub.overlay.check_invariants()


def test_a_failure_of_who_is_seldom_pinged_is_seen_in_time() -> None:
    hub = Hub(20, 1)
    hub.run(60 * S)
    assert len(hub.overlay.used_neighbours()) == 20
    assert hub.counted(30 * S)["leaf07"] <= 4
    del hub.rtts_us["leaf07"]
    hub.run(20 * S)
    assert "leaf07" not in hub.overlay.used_neighbours()
    assert len(hub.overlay.used_neighbours()) == 19


def test_without_an_allowance_all_are_pinged_every_second() -> None:
    hub = Hub(20, 0)
    hub.run(10 * S)
    assert all(20 <= each <= 22 for each in hub.counted(20 * S).values())


def test_neighbours_that_routes_go_through_are_critical() -> None:
    network = OverlayNetwork({("a", "b"): 5, ("b", "c"): 5, ("a", "d"): 5})
    network.run_for(2 * S)
    for node in "abc":
        assert network.nodes[node]._critical() == {}
    network.publish("a", "c", "uav")
    network.run_for(2 * S)
    network.nodes["a"]._critical()  # what was sent until now is known
    assert list(network.nodes["a"]._critical()) == ["b"]
    assert sorted(filter(None, network.nodes["b"]._critical())) == ["a", "c"]
    assert network.nodes["d"]._critical() == {}
