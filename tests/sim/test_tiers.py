"""Secondary nodes in simulated overlays: whatever fails, reliable channels keep their promise."""

from __future__ import annotations

import pytest

from tests.sim import slow_children
from tests.sim.tier_runs import run

SEEDS = 36
BATCH = 12


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_every_child_gets_everything_once_and_in_order(batch: int) -> None:
    switches = crashes = delivered = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        outcome, left = run(seed, is_checking=False)
        outcome.check()
        switches += left.switches
        crashes += outcome.crashes
        delivered += sum(each.delivered for each in outcome.channels.values())
    assert min(switches, crashes, delivered) > 0


@pytest.mark.parametrize("seed", [1_002, 1_003])
def test_at_each_step_all_is_as_it_must_be(seed: int) -> None:
    outcome, _ = run(seed)
    outcome.check()


@pytest.mark.parametrize("template", ["reliable", "total_order"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_slow_child_holds_publishers_back_and_loses_nothing(seed: int, template: str) -> None:
    outcome, left = slow_children.run(seed, template, is_checking=False)
    outcome.check()
    assert left.held > 0
    assert left.most >= slow_children.KEPT // 2
