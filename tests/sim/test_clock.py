"""Virtual time passes in order, and stands still where nothing happens."""

from __future__ import annotations

from typing import Any

import pytest

from accord.sim.clock import Clock
from accord.sim.trace import SimulationError


def test_what_is_due_first_happens_first_and_equals_in_the_order_they_were_asked_for() -> None:
    clock = Clock()
    seen: list[tuple[int, Any]] = []

    def see(now_us: int, what: Any) -> None:
        seen.append((now_us, what))

    clock.at(20, see, "later")
    clock.at(10, see, "b")
    clock.at(10, see, "a")
    clock.run(100)
    assert seen == [(10, "b"), (10, "a"), (20, "later")]
    assert clock.now_us == 100
    assert clock.happened == 3


def test_only_what_is_due_until_then_happens() -> None:
    clock = Clock()
    seen: list[int] = []
    clock.at(10, lambda now_us, _: seen.append(now_us))
    clock.at(11, lambda now_us, _: seen.append(now_us))
    clock.run(10)
    assert (seen, clock.now_us, clock.next_us()) == ([10], 10, 11)
    clock.run(11)
    assert (seen, clock.next_us()) == ([10, 11], None)


def test_what_is_over_already_happens_at_once() -> None:
    clock = Clock()
    seen: list[int] = []
    clock.at(50, lambda now_us, _: clock.at(now_us - 40, lambda at_us, _: seen.append(at_us)))
    clock.run(60)
    assert seen == [50]


def test_a_stopped_clock_keeps_its_time() -> None:
    clock = Clock()
    clock.at(10, lambda _, __: clock.stop())
    clock.at(20, lambda _, __: pytest.fail("the run has ended"))
    clock.run(100)
    assert clock.now_us == 10


def test_a_run_without_end_is_given_up() -> None:
    clock = Clock(most=100)

    def again(now_us: int, _: Any) -> None:
        clock.at(now_us, again)

    clock.at(7, again)
    with pytest.raises(SimulationError, match="more than 100 happenings by 7 µs"):
        clock.run(1_000)
