from __future__ import annotations

import pytest

from accord.core.scheduling.queue_entries import NEVER, EventRun, QueueEntry, cost_in_parts, due_ms


def test_a_run_knows_its_size_and_is_light_unless_told() -> None:
    run = EventRun(b"frames", 3, 5, 9)
    assert (run.size, run.count, run.importance, run.bin) == (6, 3, 5, 11)
    assert (run.queued_ms, run.expires_ms, run.number) == (9, 0, 0)
    assert run.split(1, 1) is None
    heavy = EventRun(b"frames", 3, 5, 9, 100, 7, 10)
    assert (heavy.bin, heavy.expires_ms, heavy.number) == (10, 100, 7)


def test_without_deadline_it_is_never_due() -> None:
    assert due_ms(QueueEntry(1, 1, 3, 0)) == NEVER
    assert due_ms(QueueEntry(1, 1, 3, 0, 50)) == 50


@pytest.mark.parametrize(
    ("count", "wanted", "cost"), [(1, 10, 600), (6, 900, 600), (6, 250, 250), (6, 10, 100)]
)
def test_the_next_part_costs_what_is_wanted_or_an_event(count: int, wanted: int, cost: int) -> None:
    run = EventRun(bytes(600), count, 3, 0)
    assert cost_in_parts(run, wanted) == cost
    assert run.cost(wanted) == 600, "as long as it can't be split"
