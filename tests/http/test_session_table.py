"""Sessions and attempts to open one: they end, and their number is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.http.session_table import (
    ATTEMPTS,
    ATTEMPTS_PER_ADDRESS,
    IDLE_S,
    LIFETIME_S,
    MAX_COUNTED,
    MAX_SESSIONS,
    MAX_SESSIONS_PER_USER,
    LoginLimiter,
    SessionTable,
)


def an_id(number: int) -> str:
    return f"{number:043}"


class TestSessions:
    def test_a_session_that_is_used_lasts_a_day(self) -> None:
        table = SessionTable()
        table.open(an_id(1), "ann", now_s=0)
        for now_s in range(0, LIFETIME_S, IDLE_S - 1):
            session = table.use(an_id(1), now_s=now_s)
            assert session is not None
            assert session.user == "ann"
        assert table.use(an_id(1), now_s=LIFETIME_S) is None
        assert len(table) == 0

    def test_a_session_that_is_not_used_ends(self) -> None:
        table = SessionTable()
        session = table.open(an_id(1), "ann", now_s=0)
        assert session.left_s(10) == IDLE_S - 10
        assert table.use(an_id(1), now_s=IDLE_S) is None

    def test_a_closed_session_is_gone(self) -> None:
        table = SessionTable()
        table.open(an_id(1), "ann", now_s=0)
        assert table.close(an_id(1)) is not None
        assert table.close(an_id(1)) is None
        assert table.use(an_id(1), now_s=0) is None

    def test_only_hashes_are_stored(self) -> None:
        table = SessionTable()
        table.open(an_id(7), "ann", now_s=0)
        assert an_id(7) not in repr(table.__dict__)

    def test_forged_ids(self) -> None:
        table = SessionTable()
        table.open(an_id(1), "ann", now_s=0)
        for forged in ("", an_id(2), an_id(1)[:-1], an_id(1) + "0", "é" * 43, "0" * 1_000_000):
            assert table.use(forged, now_s=0) is None

    def test_a_user_displaces_only_its_own_sessions(self) -> None:
        table = SessionTable()
        table.open(an_id(0), "bob", now_s=0)
        for number in range(1, 2 * MAX_SESSIONS_PER_USER):
            table.open(an_id(number), "ann", now_s=0)
        assert table.use(an_id(0), now_s=0) is not None
        assert table.use(an_id(1), now_s=0) is None
        assert len(table) == 1 + MAX_SESSIONS_PER_USER

    def test_all_together_are_bounded(self) -> None:
        table = SessionTable()
        for number in range(MAX_SESSIONS + 10):
            table.open(an_id(number), f"user-{number}", now_s=0)
        assert len(table) == MAX_SESSIONS
        table.open(an_id(1), "ann", now_s=IDLE_S)
        assert len(table) == 1


class TestAttempts:
    def test_a_user_has_a_burst_and_then_one_after_another(self) -> None:
        limiter = LoginLimiter()
        waits = [limiter.accept(f"10.0.0.{n}", "ann", now_s=0) for n in range(ATTEMPTS + 1)]
        assert waits == [0] * ATTEMPTS + [6]
        assert limiter.accept("10.0.1.1", "bob", now_s=0) == 0
        assert limiter.accept("10.0.1.1", "ann", now_s=6) == 0
        assert limiter.accept("10.0.1.1", "ann", now_s=6) == 6

    def test_an_address_has_a_burst_for_all_users(self) -> None:
        limiter = LoginLimiter()
        waits = [limiter.accept("10.0.0.1", f"u{n}", now_s=0) for n in range(40)]
        assert waits == [0] * ATTEMPTS_PER_ADDRESS + [2] * (40 - ATTEMPTS_PER_ADDRESS)
        assert limiter.accept("10.0.0.1", "ann", now_s=2) == 0

    def test_who_logs_in_starts_anew(self) -> None:
        limiter = LoginLimiter()
        for _ in range(ATTEMPTS):
            limiter.accept("a", "ann", now_s=0)
        limiter.succeeded("a", "ann", b"digest", now_s=0)
        assert limiter.accept("b", "ann", now_s=0) == 0

    def test_what_was_right_does_not_count_for_its_address(self) -> None:
        limiter = LoginLimiter()
        for number in range(2 * ATTEMPTS_PER_ADDRESS):
            assert limiter.accept("a", f"u{number}", now_s=0) == 0
            limiter.succeeded("a", f"u{number}", b"digest", now_s=0)

    def test_what_was_right_is_free_at_its_address(self) -> None:
        limiter = LoginLimiter()
        limiter.succeeded("2001:db8::1", "ann", b"digest", now_s=0)
        assert limiter.is_free("2001:db8::2", "ann", b"digest")
        assert not limiter.is_free("2001:db8:0:1::1", "ann", b"digest")
        assert not limiter.is_free("2001:db8::2", "bob", b"digest")
        for _ in range(ATTEMPTS):
            assert limiter.is_free("2001:db8::2", "ann", b"digest")
            assert not limiter.is_free("2001:db8::2", "ann", b"other")
        assert not limiter.is_free("2001:db8::2", "ann", b"digest")

    def test_a_network_of_ipv6_is_one_address(self) -> None:
        limiter = LoginLimiter()
        waits = [limiter.accept(f"2001:db8::{n:x}", f"u{n}", now_s=0) for n in range(31)]
        assert waits[-1] > 0
        assert limiter.accept("2001:db8:0:1::1", "x", now_s=0) == 0
        assert limiter.accept("fe80::1%eth0", "x", now_s=0) == 0

    def test_mapped_addresses_are_those_of_ipv4(self) -> None:
        limiter = LoginLimiter()
        for number in range(ATTEMPTS_PER_ADDRESS):
            limiter.accept("::ffff:10.0.0.1", f"u{number}", now_s=0)
        assert limiter.accept("10.0.0.1", "ann", now_s=0) > 0
        assert limiter.accept("::ffff:10.0.0.2", "bob", now_s=0) == 0

    def test_what_is_counted_is_bounded(self) -> None:
        limiter = LoginLimiter()
        for number in range(MAX_COUNTED + 500):
            limiter.accept(f"address {number}", f"user-{number}", now_s=0)
            limiter.succeeded(f"address {number}", f"user-{number}", b"digest", now_s=0)
        assert len(limiter) == 3 * MAX_COUNTED

    @given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 30)), max_size=60))
    def test_no_user_gets_more_than_the_rate(self, steps: list[tuple[int, float]]) -> None:
        limiter = LoginLimiter()
        now_s = 0.0
        accepted = 0
        for address, wait_s in steps:
            now_s += wait_s
            accepted += limiter.accept(str(address), "ann", now_s=now_s) == 0
        assert accepted <= ATTEMPTS + now_s / 5.9 + 1
