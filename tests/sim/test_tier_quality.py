"""Nodes of two tiers negotiate the truth, whatever fails: see `tier_quality_runs`."""

from __future__ import annotations

import pytest

from tests.sim.tier_quality_runs import TierQualityRun, run

SEEDS = 24
BATCH = 8


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_all_tiers_come_to_what_a_global_computation_gives(batch: int) -> None:
    totals: dict[str, int] = {}
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        quality = TierQualityRun(seed)
        outcome = quality.run()
        outcome.check()
        for name, count in [("crashes", outcome.crashes), *quality.counts().items()]:
            totals[name] = totals.get(name, 0) + count
    assert min(totals.values()) > 0, totals


@pytest.mark.parametrize("seed", [1_000, 1_001])
def test_there_is_never_a_contradiction(seed: int) -> None:
    run(seed, is_checking=True).check()
