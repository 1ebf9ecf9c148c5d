from __future__ import annotations

import pytest

from accord.client.driver import Backoff


def test_waits_double_up_to_the_limit_and_start_again_after_success() -> None:
    backoff = Backoff(lambda: 1.0, first_ms=100, limit_ms=500)
    assert [backoff.next_ms() for _ in range(5)] == [100, 200, 400, 500, 500]
    backoff.reset()
    assert backoff.next_ms() == 100


def test_chance_takes_off_up_to_half() -> None:
    chances = iter([0.0, 0.5, 0.0])
    backoff = Backoff(lambda: next(chances), first_ms=100, limit_ms=500)
    assert [backoff.next_ms() for _ in range(3)] == [50, 150, 200]


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="first_ms"):
        Backoff(lambda: 0.0, first_ms=0)
