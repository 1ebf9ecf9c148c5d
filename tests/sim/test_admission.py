"""Subscriptions that are admitted in simulated overlays, whatever happens meanwhile."""

from __future__ import annotations

import pytest

from accord.core.admission.reservation import ReservationState
from tests.sim.admission_runs import run

SEEDS = 36
BATCH = 12  # so many that there are outcomes of all kinds


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_no_promise_is_leaked_and_nothing_contradicts(batch: int) -> None:
    counts = dict.fromkeys(ReservationState, 0)
    crashes = promises = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        outcome, checker = run(seed, is_checking=False)
        outcome.check()
        crashes += outcome.crashes
        promises += checker.held
        for state, count in checker.counts.items():
            counts[state] += count
    assert (
        min(counts[ReservationState.ADMITTED], counts[ReservationState.REFUSED], crashes, promises)
        > 0
    )


@pytest.mark.parametrize("seed", [1_001, 1_002])
def test_at_each_step_all_is_as_it_must_be(seed: int) -> None:
    outcome, _ = run(seed)
    outcome.check()
