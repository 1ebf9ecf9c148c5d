"""The link's estimate, in a simulation of links that nobody describes to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulated_link import SEGMENT, Figures, S, Sender, SimulatedLink

from accord.core.scheduling.link_estimator import LinkEstimator

SEGMENT_US = SEGMENT * 8 * S // 300_000


def steady(rate_bps: int) -> Callable[[int], int]:
    return lambda _: rate_bps


def worst_wait_us(figures: Figures) -> int:
    """All but the twentieth of events wait no longer in front of the link."""
    waits_us = sorted(figures.waits_us)
    return waits_us[len(waits_us) * 19 // 20]


@pytest.mark.parametrize("delay_us", [0, 20_000, 40_000])
@pytest.mark.parametrize("size", [100, 1_000, 10_000, 50_000])
def test_a_slow_link_is_kept_busy_and_holds_hardly_more(size: int, delay_us: int) -> None:
    sender = Sender(SimulatedLink(steady(300_000), delay_us), size=size)
    sender.run(3 * S)
    found = sender.run(10 * S)
    assert found.use > 0.99
    assert worst_wait_us(found) < 110_000
    assert 270_000 < found.rate_bps < 330_000
    assert found.looks < 60 * 10, "it is looked at a few dozen times a second"


@pytest.mark.parametrize("rate_bps", [56_000, 1_000_000, 2_000_000, 10_000_000, 100_000_000])
@pytest.mark.parametrize("delay_us", [0, 40_000])
def test_links_of_other_rates_too(rate_bps: int, delay_us: int) -> None:
    sender = Sender(SimulatedLink(steady(rate_bps), delay_us), size=10_000)
    sender.run(3 * S)
    found = sender.run(3 * S)
    assert found.use > 0.98
    assert worst_wait_us(found) < 60_000 + 2 * SEGMENT * 8 * S // rate_bps
    assert abs(found.rate_bps - rate_bps) < 0.1 * rate_bps


def test_an_unknown_slow_link_gets_half_a_second_at_first() -> None:
    sender = Sender(SimulatedLink(steady(300_000)), size=100)
    found = sender.run(S // 2)
    assert max(found.waits_us) < S // 2
    assert found.use > 0.99


@pytest.mark.parametrize("delay_us", [0, 40_000])
@pytest.mark.parametrize("size", [100, 10_000, 50_000])
def test_changes_are_followed_within_two_seconds(size: int, delay_us: int) -> None:
    rates = (1_000_000, 300_000, 2_000_000, 300_000)

    def rate_bps(now_us: int) -> int:
        return rates[min(now_us // (8 * S), 3)]

    sender = Sender(SimulatedLink(rate_bps, delay_us), size=size)
    for rate in rates:
        assert sender.run(2 * S).use > 0.85
        found = sender.run(6 * S)
        assert found.use > 0.99
        assert abs(found.rate_bps - rate) < 0.1 * rate
        assert worst_wait_us(found) < 110_000


def test_far_and_fast_links_are_filled() -> None:
    """As fast as TCP itself begins: it doubles what is under way with each round trip."""
    sender = Sender(SimulatedLink(steady(20_000_000), delay_us=100_000), size=10_000)
    sender.run(4 * S)
    assert sender.run(4 * S).use > 0.98


@pytest.mark.parametrize("loss", [0.01, 0.03])
@pytest.mark.parametrize("size", [100, 10_000])
def test_losses_change_nothing(size: int, loss: float) -> None:
    sender = Sender(SimulatedLink(steady(300_000), 40_000, loss=loss, seed=7), size=size)
    sender.run(3 * S)
    found = sender.run(20 * S)
    assert found.use > 0.97
    assert worst_wait_us(found) < 120_000


@pytest.mark.parametrize("bunch_us", [100_000, 200_000])
def test_acknowledgements_in_bunches_are_waited_out(bunch_us: int) -> None:
    sender = Sender(SimulatedLink(steady(2_000_000), 10_000, bunch_us=bunch_us), size=10_000)
    sender.run(4 * S)
    found = sender.run(10 * S)
    assert found.use > 0.9
    assert worst_wait_us(found) < 2 * bunch_us


def test_a_node_that_is_late_still_uses_its_links() -> None:
    sender = Sender(SimulatedLink(steady(2_000_000), 10_000), size=10_000, late_us=100_000)
    sender.run(4 * S)
    assert sender.run(10 * S).use > 0.9


def test_sending_may_take_its_time() -> None:
    """Used up a little later than given is used up at once all the same."""
    sender = Sender(SimulatedLink(steady(300_000)), size=1_000, work_us=2_000)
    sender.run(3 * S)
    found = sender.run(5 * S)
    assert found.rate_bps > 270_000
    assert worst_wait_us(found) < 110_000


def test_a_receiver_that_stops_reading_finds_everything_as_it_was() -> None:
    def reads(now_us: int) -> bool:
        return not 5 * S < now_us < 15 * S

    sender = Sender(SimulatedLink(steady(300_000), 20_000, reads=reads), size=1_000)
    before = sender.run(5 * S)
    stopped = sender.run(10 * S)
    assert stopped.use < 0.1
    assert stopped.looks < 60, "the longer nothing moves, the less often it is looked at"
    assert sender.link.rate_bps == before.rate_bps
    sender.run(S)
    assert sender.run(4 * S).use > 0.99


def test_who_has_little_to_send_does_not_look_slow() -> None:
    """A kilobyte every 5 ms is 1.6 Mbit/s of the 100 that the link carries."""
    carrier = SimulatedLink(steady(100_000_000), delay_us=100_000)
    sender = Sender(carrier, size=1_000, wants=lambda _: carrier.handed <= carrier.now_us // 5)
    assert sender.run(10 * S).waits_us
    assert sender.link.rate_bps == 0
    assert sender.link.sending_ms(10_000) == 0
    assert sender.link.send_window >= 10 * SEGMENT


def test_a_link_that_is_not_filled_any_more_shows_to_be_faster() -> None:
    """Otherwise what is shaped for a slow link would be shaped for ever."""
    carrier = SimulatedLink(lambda now_us: 300_000 if now_us < 5 * S else 10_000_000, 10_000)
    sender = Sender(carrier, size=10_000)
    assert sender.run(5 * S).rate_bps < 400_000
    handed = carrier.handed
    sender.wants = lambda now_us: carrier.handed < handed + (now_us - 5 * S) // 50
    found = sender.run(5 * S)
    assert 10 <= len(found.waits_us) <= 11, "10 KB every half second"
    assert found.rate_bps > 1_000_000


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> Figures:
        return Sender(SimulatedLink(steady(1_000_000), 20_000, loss=0.02, seed=3)).run(5 * S)

    assert run() == run()


@settings(max_examples=12, deadline=None)
@given(
    rates_kbps=st.lists(st.integers(50, 3_000), min_size=1, max_size=3),
    delay_us=st.integers(0, 100_000),
    size=st.integers(100, 60_000),
    loss=st.sampled_from([0.0, 0.0, 0.02]),
    late_us=st.integers(0, 30_000),
)
def test_no_link_starves(
    rates_kbps: list[int], delay_us: int, size: int, loss: float, late_us: int
) -> None:
    def rate_bps(now_us: int) -> int:
        return rates_kbps[min(now_us // (2 * S), len(rates_kbps) - 1)] * 1_000

    carrier = SimulatedLink(rate_bps, delay_us, loss=loss, seed=size)
    sender = Sender(carrier, size=size, late_us=late_us)
    sender.run(2 * S * len(rates_kbps))
    # Until what an earlier, faster link was given is through.
    drained_us = carrier.waiting_us()
    sender.run(drained_us + 4 * S)
    assert sender.run(4 * S).use > 0.8


def test_limits_count_where_they_are_less() -> None:
    link = LinkEstimator()
    assert link.capacity_bps() == 0
    link.limit_bps = 80_000
    assert link.capacity_bps() == 80_000
    assert link.sending_ms(1_000) == 100
    link.rate_bps = 40_000
    assert link.capacity_bps() == 40_000
    link.sent(1_000)
    assert link.outstanding_bytes == 1_000
    assert link.sending_ms(1_000) == 400


def test_the_first_allowance_is_ten_segments() -> None:
    link = LinkEstimator()
    link.set_path(1_448, 40_500)
    assert (link.room, link.send_window, link.rtt_ms) == (14_480, 14_480, 41)
    link.sent(2_000)
    link.set_path(1_448, 30_000)
    held = [link.is_held]
    assert link.room == 12_480
    link.sent(14_000)
    assert link.sample(1, 16_000) == 0
    held.append(link.is_held)
    assert held == [False, True]
    assert link.wait_us > 0
