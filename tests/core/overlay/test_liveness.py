from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.overlay.liveness import (
    Availability,
    LivenessOptions,
    NeighbourLiveness,
    Ping,
    Pong,
    pong_for,
)

MS = 1_000
S = 1_000_000
HOUR = 3_600 * S


def new_pulse(ping_us: int = S, random: float = 0.0, now_us: int = 0) -> NeighbourLiveness:
    """Without jitter unless `random` is more than 0."""
    pulse = NeighbourLiveness("denver", LivenessOptions(ping_us=ping_us), lambda: random, now_us)
    pulse.link_up(now_us)
    return pulse


def run(pulse: NeighbourLiveness, until_us: int, rtt_us: int | None, now_us: int = 0) -> int:
    """Let time pass up to then; every ping is answered after `rtt_us`. Gives when it died."""
    answers: list[tuple[int, Pong]] = []
    died_us = -1
    while (due_us := pulse.next_due_us()) is not None:
        now_us = max(now_us, min([due_us, *(when_us for when_us, _ in answers)]))
        if now_us > until_us:
            break
        while answers and answers[0][0] <= now_us:
            pulse.on_pong(answers.pop(0)[1], now_us)
        if pulse.advance(now_us):
            died_us = now_us
        pulse.check_invariants()
        for ping in pulse.sends:
            if rtt_us is not None:
                answers.append((now_us + rtt_us, pong_for(ping)))
        pulse.sends.clear()
    return died_us


def test_messages_travel_as_arrays() -> None:
    decoder = msgspec.msgpack.Decoder(Ping | Pong)
    for message in (Ping(7, 1_234), Pong(7, 1_234)):
        assert decoder.decode(msgspec.msgpack.encode(message)) == message
    assert pong_for(Ping(7, 1_234)) == Pong(7, 1_234)


def test_the_first_answer_makes_alive() -> None:
    pulse = new_pulse()
    assert pulse.next_due_us() == 0
    assert not pulse.advance(0)
    assert pulse.sends == [Ping(1, 0)]
    assert pulse.on_pong(Pong(1, 0), 80 * MS)
    assert pulse.is_up
    assert (pulse.rtt_us, pulse.latency_us, pulse.deviation_us) == (80 * MS, 40 * MS, 40 * MS)
    assert not pulse.on_pong(Pong(1, 0), 90 * MS), "a copy says nothing"


def test_three_misses_in_a_row_make_dead() -> None:
    pulse = new_pulse()
    run(pulse, 10 * S + 500 * MS, 80 * MS)
    assert pulse.is_up
    died_us = run(pulse, 20 * S, None, now_us=10 * S + 500 * MS)
    # The last ping that was answered went out at 10 s, those of 11, 12, 13 s are missed.
    assert died_us == 13 * S + pulse.ping_timeout_us
    assert pulse.ping_timeout_us < 100 * MS
    assert not pulse.is_up


def test_who_is_heard_is_not_dead_even_if_answers_are_held_up() -> None:
    pulse = new_pulse()
    run(pulse, 5 * S, 80 * MS)
    for tenth in range(51, 150):
        pulse.on_message(tenth * 100 * MS)
        assert not pulse.advance(tenth * 100 * MS)
    assert pulse.is_up
    assert pulse.loss > 0.1
    assert 15 * S < run(pulse, 30 * S, None, 15 * S) <= 19 * S


def test_what_was_said_before_a_ping_was_sent_is_no_answer_to_it() -> None:
    pulse = new_pulse()
    run(pulse, 5 * S, 800 * MS)
    died_us = run(pulse, 20 * S, None, 5 * S)
    late = new_pulse()
    run(late, 5 * S, 800 * MS)
    late.on_message(5 * S + 400 * MS)  # said before the ping at 5 s came
    assert run(late, 20 * S, None, 5 * S) == died_us > 0


def test_two_misses_do_not() -> None:
    pulse = new_pulse()
    run(pulse, 10 * S + 500 * MS, 80 * MS)
    assert run(pulse, 12 * S + 500 * MS, None, now_us=10 * S + 500 * MS) == -1
    assert run(pulse, 60 * S, 80 * MS, now_us=12 * S + 500 * MS) == -1
    assert pulse.is_up


@given(st.integers(10 * MS, 2 * S), st.integers(0, 300 * MS), st.integers(0, S - 1))
def test_failure_is_known_within_three_intervals_and_a_round_trip(
    ping_us: int, rtt_us: int, part: int
) -> None:
    """Whenever it fails: what was sent before that may still be answered."""
    pulse = new_pulse(ping_us)
    failed_us = 20 * ping_us + 300 * MS + ping_us * part // S
    run(pulse, failed_us, rtt_us)
    assert pulse.is_up
    usual_us = pulse.ping_timeout_us
    known_us = failed_us + 3 * ping_us + usual_us
    assert failed_us <= run(pulse, known_us, None, now_us=failed_us) <= known_us
    assert not pulse.is_up


def test_a_slower_link_is_not_dead_and_is_soon_measured_rightly() -> None:
    pulse = new_pulse()
    run(pulse, 10 * S + 500 * MS, 20 * MS)
    assert run(pulse, 60 * S, 900 * MS, now_us=10 * S + 500 * MS) == -1
    assert pulse.rtt_us == pytest.approx(900 * MS, rel=0.01)
    assert pulse.loss < 0.1


def test_a_link_that_got_much_slower_than_pings_go_out_comes_back() -> None:
    pulse = new_pulse(10 * MS)
    run(pulse, 2 * S, MS)
    assert run(pulse, 10 * S, 700 * MS, now_us=2 * S) > 2 * S
    assert pulse.is_up
    assert pulse.rtt_us == pytest.approx(700 * MS, rel=0.01)


def test_the_mean_is_smoothed_as_by_tcp() -> None:
    pulse = new_pulse()
    for number, rtt_us in enumerate((80 * MS, 160 * MS), start=1):
        pulse.advance(number * S)
        pulse.on_pong(Pong(number, 0), number * S + rtt_us)
    assert pulse.rtt_us == 90 * MS
    assert pulse.deviation_us == 50 * MS
    assert pulse.ping_timeout_us == 290 * MS


def answered(pulse: NeighbourLiveness, *rtts_us: int) -> None:
    """One ping after the other, each answered after so long."""
    for rtt_us in rtts_us:
        now_us = pulse.next_due_us()
        assert now_us is not None
        pulse.advance(now_us)
        ping = pulse.sends.pop()
        pulse.on_pong(pong_for(ping), now_us + rtt_us)
        pulse.check_invariants()


@pytest.mark.parametrize("rtt_us", [140 * MS, 2 * MS])
def test_a_link_that_takes_another_time_is_known_after_two_answers(rtt_us: int) -> None:
    pulse = new_pulse()
    answered(pulse, *[40 * MS] * 20)
    answered(pulse, rtt_us)
    assert pulse.rtt_us == 40 * MS
    answered(pulse, rtt_us + MS)
    assert pulse.rtt_us == pytest.approx(rtt_us, abs=MS)
    answered(pulse, rtt_us, rtt_us)
    assert pulse.rtt_us == pytest.approx(rtt_us, abs=MS)


@pytest.mark.parametrize(("half_us", "rtt_us"), [(90 * MS, 140 * MS), (240 * MS, 440 * MS)])
def test_the_first_answer_may_have_found_only_half_of_it_changed(half_us: int, rtt_us: int) -> None:
    """The ping went before the link got slower, and its answer after."""
    pulse = new_pulse()
    answered(pulse, *[40 * MS] * 20)
    answered(pulse, half_us, rtt_us, rtt_us)
    assert pulse.rtt_us == pytest.approx(rtt_us, rel=0.01)


def test_a_machine_that_was_busy_for_two_pings_is_soon_forgotten() -> None:
    pulse = new_pulse()
    answered(pulse, *[40 * MS] * 20)
    answered(pulse, 200 * MS, 90 * MS)
    assert pulse.rtt_us == 90 * MS
    answered(pulse, 40 * MS, 40 * MS)
    assert pulse.rtt_us == pytest.approx(40 * MS, rel=0.1)


def test_single_answers_that_are_held_up_change_little() -> None:
    pulse = new_pulse()
    answered(pulse, *[40 * MS] * 20)
    answered(pulse, *[900 * MS, 40 * MS, 41 * MS] * 3)
    assert 40 * MS <= pulse.rtt_us < 45 * MS


def test_answers_that_were_held_up_together_say_little() -> None:
    """A connection that stood still for a while: all answers come when it goes on."""
    pulse = new_pulse()
    run(pulse, 20 * S + 500 * MS, 10 * MS)
    held: list[Ping] = []
    for now_us in range(21 * S, 25 * S, 10 * MS):
        pulse.advance(now_us)
        held += pulse.sends
        pulse.sends.clear()
    was_up = pulse.is_up
    for ping in held:
        pulse.on_pong(pong_for(ping), 25 * S)
    assert (was_up, pulse.is_up) == (False, True)
    run(pulse, 27 * S, 10 * MS, now_us=25 * S)
    assert pulse.rtt_us < 20 * MS


def test_what_is_far_off_in_both_directions_is_no_new_mean() -> None:
    pulse = new_pulse()
    answered(pulse, *[40 * MS] * 20)
    answered(pulse, 900 * MS, MS, 900 * MS, MS)
    assert 35 * MS < pulse.rtt_us < 50 * MS


def test_a_link_that_varies_is_soon_expected_to() -> None:
    pulse = new_pulse()
    answered(pulse, *[40 * MS] * 20)
    answered(pulse, *[40 * MS, 140 * MS] * 10)
    assert pulse.ping_timeout_us > 140 * MS
    assert pulse.rtt_us == pytest.approx(90 * MS, abs=20 * MS)


@given(st.lists(st.integers(0, 2 * S), min_size=1, max_size=30))
def test_the_mean_stays_within_what_was_measured(rtts_us: list[int]) -> None:
    pulse = new_pulse(ping_us=3 * S)
    for rtt_us in rtts_us:
        answered(pulse, rtt_us)
    assert min(rtts_us) <= pulse.rtt_us <= max(rtts_us)
    assert pulse.deviation_us <= max(rtts_us)


def test_pings_come_up_to_a_tenth_early() -> None:
    pulse = new_pulse(random=0.5)
    pulse.advance(0)
    assert pulse.next_due_us() == 950 * MS


def test_who_was_held_up_does_not_blame_others() -> None:
    pulse = new_pulse(10 * MS)
    run(pulse, S, MS)
    pulse.sends.clear()
    for late_us in range(5):
        assert not pulse.advance(5 * S + late_us)
    assert pulse.is_up
    assert len(pulse.sends) == 1
    assert pulse.next_due_us() == 5 * S + 10 * MS


def test_loss_is_the_share_of_what_is_missed() -> None:
    pulse = new_pulse()
    now_us = 0
    for number in range(1, 400):
        pulse.advance(now_us)
        if number % 4:
            pulse.on_pong(Pong(number, 0), now_us + MS)
        now_us += S
    assert pulse.is_up
    assert pulse.loss == pytest.approx(0.25, abs=0.05)


def test_what_was_never_asked_says_nothing() -> None:
    pulse = new_pulse()
    pulse.advance(0)
    assert not pulse.on_pong(Pong(2, 0), MS)
    assert not pulse.on_pong(Pong(-1, 0), MS)
    assert not pulse.is_up


def test_without_transport_there_is_nothing_to_do() -> None:
    pulse = new_pulse()
    run(pulse, 5 * S, MS)
    assert pulse.link_down(5 * S)
    assert not pulse.link_down(6 * S)
    assert pulse.next_due_us() is None
    assert not pulse.advance(7 * S)
    assert (pulse.sends, pulse.is_up) == ([], False)
    pulse.check_invariants()


def test_answers_to_pings_of_the_former_transport_do_not_count() -> None:
    pulse = new_pulse()
    pulse.advance(0)
    pulse.link_down(MS)
    pulse.link_up(2 * MS)
    pulse.advance(2 * MS)
    assert not pulse.on_pong(Pong(1, 0), 3 * MS)
    assert pulse.on_pong(Pong(2, 0), 5 * MS)
    assert pulse.rtt_us == 3 * MS


def test_availability_begins_with_the_prior() -> None:
    pulse = new_pulse()
    assert pulse.availability.share(0) == pytest.approx(0.99)
    run(pulse, HOUR, 40 * MS)
    assert pulse.availability.share(HOUR) == pytest.approx((1 + 0.99) / 2, abs=1e-4)
    pulse.link_down(HOUR)
    assert pulse.availability.share(2 * HOUR) == pytest.approx(1.99 / 3, abs=1e-4)


def test_a_day_later_it_does_not_matter_any_more() -> None:
    history = Availability(0.5, 0)
    history.record(True, 0)
    history.record(False, 0)
    history.record(True, 100 * HOUR)
    assert history.share(100 * HOUR) == pytest.approx(0.5 / 25)
    assert history.share(112 * HOUR) == pytest.approx(12.5 / 25)
    assert history.share(124 * HOUR) == pytest.approx(24.5 / 25)
    history.record(False, 124 * HOUR)
    assert history.share(1_000 * HOUR) == pytest.approx(0.5 / 25)
    history.check_invariants()


def test_time_before_it_was_up_first_is_unknown() -> None:
    history = Availability(0.99, 0)
    history.record(False, HOUR)
    history.record(True, 3 * HOUR)
    assert history.share(3 * HOUR) == pytest.approx(0.99)
    assert history.failure(3 * HOUR) == pytest.approx(0.01)


def test_a_flapping_link_fails_as_often_as_it_did() -> None:
    history = Availability(0.99, 0)
    for turn in range(15):
        history.record(turn % 2 == 0, turn * 5 * S)
    # It was down for 35 of 70 seconds.
    assert 0.2 < history.failure(75 * S) < 0.5
    for turn in range(15, 480):
        history.record(turn % 2 == 0, turn * 5 * S)
        history.check_invariants()
    assert 0.4 < history.failure(2_400 * S) < 0.5
    history.record(True, 2_400 * S)
    assert history.failure(2_400 * S + 10 * HOUR) < 0.1
    assert history.failure(2_400 * S + 40 * HOUR) < 0.001


def test_one_short_failure_is_no_flapping() -> None:
    history = Availability(0.99, 0)
    history.record(True, 0)
    history.record(False, HOUR)
    history.record(True, HOUR + 5 * S)
    assert history.failure(HOUR + 5 * S) < 0.01


def test_what_was_measured_counts_unless_the_last_minutes_are_worse() -> None:
    history = Availability(0.99, 0)
    history.record(True, 0)
    assert history.failure(HOUR, 0.3) == 0.3
    assert history.failure(HOUR, 0.0) == 0.0
    history.record(False, HOUR)
    history.record(True, HOUR + 600 * S)
    assert history.failure(HOUR + 600 * S, 0.3) > 0.5
    assert history.failure(2 * HOUR, 0.3) == 0.3


@given(st.lists(st.tuples(st.integers(0, 30 * HOUR), st.booleans()), max_size=20))
def test_availability_is_a_share_of_about_a_day(turns: list[tuple[int, bool]]) -> None:
    now_us = 12 * HOUR + 5
    history = Availability(0.9, now_us)
    ups: list[tuple[int, int]] = []
    start_us, is_up = now_us, True
    history.record(True, now_us)
    for elapsed_us, turned in turns:
        if is_up:
            ups.append((now_us, now_us + elapsed_us))
        now_us += elapsed_us
        history.record(turned, now_us)
        is_up = turned
        history.check_invariants()
    # Whole hours are kept: this one, and the 23 before it.
    since_us = max((now_us - 1) // HOUR * HOUR - 23 * HOUR, start_us)
    up_us = sum(max(until_us - max(from_us, since_us), 0) for from_us, until_us in ups)
    expected = (up_us + 0.9 * HOUR) / (now_us - since_us + HOUR)
    assert history.share(now_us) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ping_us": 9_999}, "ping_us: expected at least 10,000, got 9,999"),
        ({"misses": 0}, "misses: expected at least 1, got 0"),
        ({"availability": 1.5}, "availability: expected 0 to 1, got 1.5"),
    ],
)
def test_options_that_can_not_be(options: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        LivenessOptions(**options)
