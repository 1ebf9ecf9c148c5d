"""Subscriptions that began in the past, asked for again by a client that lost its session."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.client.machine_io import Lost, SubscribeRequested
from accord.client.resume_point import (
    LATE_MS,
    MAX_REMEMBERED,
    QUIET_MS,
    SURE_MS,
    ResumePoint,
    ago_text,
    iso_text,
)
from accord.core.model.units import parse_time
from accord.core.mqtt.packets import Puback, Publish, Suback, Subscribe, TopicFilter
from accord.core.mqtt.properties import EVENT, NODE, RECEIVED, Properties
from tests.client.test_machine import Talk

DAY_MS = 86_400_000


def live(payload: bytes = b"x", *, retain: bool = False) -> Publish:
    return Publish("a", payload, 1, retain, properties=Properties(user=(("n", "1"),)))


def told(name: str, received_ms: int, payload: bytes = b"x") -> Publish:
    user = (("n", "1"), (EVENT, name), (RECEIVED, str(received_ms)))
    return Publish("a", payload, 1, properties=Properties(user=user))


def test_events_of_two_nodes_may_have_the_same_number() -> None:
    past = ResumePoint("-24h", 0)
    for node in ("a", "b"):
        message = told("A", 50_000)
        user = (*message.properties.user, (NODE, node))
        assert past.accept(Publish("a", b"x", 1, properties=Properties(user=user)), 10), node
        assert not past.accept(Publish("a", b"x", 1, properties=Properties(user=user)), 10)


class TestWhereToGoOn:
    def test_nothing_came(self) -> None:
        past = ResumePoint("-24h", 1_000)
        past.resume(1_000)
        assert past.since == "-24h"
        past.resume(6_000)
        assert past.since == ago_text(DAY_MS + 5_000)

    def test_a_moment_stays_one(self) -> None:
        past = ResumePoint("2026-11-16", 0)
        past.resume(9_000)
        assert past.since == "2026-11-16"

    def test_what_only_a_server_understands(self) -> None:
        past = ResumePoint("full moon", 0)
        past.resume(9_000)
        assert past.since == "full moon"

    def test_in_the_past(self) -> None:
        past = ResumePoint("-24h", 0)
        assert past.accept(told("A", 50_000), 10)
        past.resume(99_000)
        assert past.since == iso_text(50_000 - SURE_MS) == "1970-01-01T00:00:49.000Z"

    def test_live_meanwhile_on_channels_that_are_not_kept(self) -> None:
        past = ResumePoint("-24h", 0)
        past.accept(told("A", 50_000), 10)
        past.accept(live(), 20)
        past.resume(99_000)
        assert past.since == iso_text(50_000 - SURE_MS)

    def test_live(self) -> None:
        past = ResumePoint("-24h", 0)
        past.accept(told("A", 50_000), 10)
        past.accept(live(), 10 + QUIET_MS)
        past.resume(100 + QUIET_MS)
        assert past.since == ago_text(90 + LATE_MS)

    def test_retained_events_are_of_any_age(self) -> None:
        past = ResumePoint("-24h", 0)
        past.accept(live(retain=True), QUIET_MS)
        past.resume(QUIET_MS)
        assert past.since == ago_text(DAY_MS + QUIET_MS)


class TestWhatCameBefore:
    def test_by_name(self) -> None:
        past = ResumePoint("-24h", 0)
        assert past.accept(told("A", 50_000), 10)
        past.resume(20)
        assert not past.accept(told("A", 50_000), 30)
        assert past.accept(told("B", 50_000), 30)

    def test_by_content_as_often_as_it_came(self) -> None:
        past = ResumePoint("-24h", 0)
        for _ in range(2):
            assert past.accept(live(), QUIET_MS)
        past.resume(QUIET_MS)
        accepted = [past.accept(told(name, 50_000), QUIET_MS) for name in "ABC"]
        assert accepted == [False, False, True]

    def test_not_what_may_be_from_before_the_place(self) -> None:
        past = ResumePoint("-24h", 0)
        past.accept(live(), QUIET_MS)
        past.accept(live(b"y"), QUIET_MS + SURE_MS + 1)
        past.resume(QUIET_MS + SURE_MS + 1)
        assert past.accept(told("A", 50_000), QUIET_MS + SURE_MS + 1)

    def test_memory_is_bounded(self) -> None:
        past = ResumePoint("-24h", 0)
        for number in range(MAX_REMEMBERED + 1):
            past.accept(told(str(number), 50_000), 10)
        past.resume(20)
        assert past.accept(told("0", 50_000), 30)
        assert not past.accept(told(str(MAX_REMEMBERED), 50_000), 30)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32))
def test_nothing_is_missing_and_little_comes_twice(seed: int) -> None:
    """A server with another clock, that forgets the session at each break."""
    random = Random(seed)  # noqa: S311
    gaps = [random.choice([1, 50, 300, 1_000, 4_000]) for _ in range(random.randint(1, 60))]
    breaks = sorted(random.randint(1, 1_000 + sum(gaps)) for _ in range(random.randint(0, 3)))
    latency_ms, skew_ms = random.randint(0, 900), random.randint(0, 10**12)
    is_uniform = random.random() < 0.5
    times, now = [], 1_000
    for gap in gaps:
        now += gap
        times.append(now)
    past = ResumePoint("-1h", 0)
    got: Counter[int] = Counter()
    begin, began = -3_600_000, 0
    allowed: set[int] = set()
    for end in [*breaks, 10**9]:
        for number, time in enumerate(times):
            came = time + latency_ms if time >= began else began
            if time < begin or came >= end:
                continue
            payload = b"x" if is_uniform else b"%d" % number
            is_past = time < began
            message = told(str(number), time + skew_ms, payload) if is_past else live(payload)
            if past.accept(message, came):
                got[number] += 1
        last = max((time + latency_ms for time in times if time + latency_ms < end), default=0)
        allowed |= {n for n, time in enumerate(times) if last - 2 * LATE_MS <= time <= last}
        past.resume(end)
        began = end
        begin = parse_time(past.since, now_ms=end + skew_ms + 10**13)
        begin -= skew_ms + (10**13 if past.since.startswith("-") else 0)
    assert all(got[number] >= 1 for number in range(len(times)))
    assert {number for number in got if got[number] > 1} <= allowed


def test_a_client_asks_from_where_it_was() -> None:
    talk = Talk()
    talk.connected()
    user = (("where", "n > 0"), ("since", "-24h"))
    [asked] = talk.happened(SubscribeRequested(0, 1, TopicFilter("a", 1), user, 10))
    assert isinstance(asked, Subscribe)
    assert asked.properties.user == user
    talk.said(Suback(asked.packet_id, (1,)))
    message = told("A", 50_000)
    for packet_id in (1, 2):
        again = Publish("a", b"x", 1, packet_id=packet_id, properties=message.properties)
        answers = talk.said(again)
    assert answers == [Puback(2)]  # not for the consumer, who has the first
    talk.happened(Lost())
    [asked] = talk.connected(is_resumed=False)
    assert isinstance(asked, Subscribe)
    assert asked.properties.user == (("where", "n > 0"), ("since", "1970-01-01T00:00:49.000Z"))


@pytest.mark.parametrize("moment_ms", [0, 1, 999, 1_700_000_000_123])
def test_moments_are_exact(moment_ms: int) -> None:
    assert parse_time(iso_text(moment_ms), now_ms=0) == moment_ms
