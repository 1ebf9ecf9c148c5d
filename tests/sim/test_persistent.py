"""Persistent channels in simulated overlays: nothing is missing or twice, whatever fails."""

from __future__ import annotations

import pytest

from tests.sim import persistent_tier_runs
from tests.sim.persistent_runs import run

SEEDS = 24
BATCH = 12  # so many that something fails in some, and much comes late in others


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_who_comes_at_any_time_has_all_there_ever_was(batch: int) -> None:
    crashes = handed = missed = events = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        outcome, ground, checker = run(seed, is_checking=False)
        outcome.check()
        crashes += outcome.crashes
        handed += ground.handed
        missed += ground.missed
        events += checker.events
    assert min(crashes, handed, missed, events) > 0


@pytest.mark.parametrize("seed", [1_004, 1_009])
def test_at_each_step_all_is_as_it_must_be(seed: int) -> None:
    outcome, ground, checker = run(seed)
    outcome.check()
    assert ground.handed
    assert checker.clients


TIER_SEEDS = 36
TIER_BATCH = 12


@pytest.mark.parametrize("batch", range(TIER_SEEDS // TIER_BATCH))
def test_clients_of_secondary_nodes_have_all_there_ever_was(batch: int) -> None:
    crashes = switches = handed = events = 0
    for seed in range(batch * TIER_BATCH, (batch + 1) * TIER_BATCH):
        outcome, ground, checker = persistent_tier_runs.run(seed, is_checking=False)
        outcome.check()
        crashes += outcome.crashes
        switches += checker.switches
        handed += ground.handed
        events += checker.at_children
    assert min(crashes, switches, handed, events) > 0


@pytest.mark.parametrize("seed", [1_003, 1_010])
def test_at_each_step_of_two_tiers_all_is_as_it_must_be(seed: int) -> None:
    outcome, ground, checker = persistent_tier_runs.run(seed)
    outcome.check()
    assert ground.handed
    assert checker.at_children


def test_a_run_replays_from_its_seed() -> None:
    (first, one, _), (second, other, _) = run(11, is_checking=False), run(11, is_checking=False)
    assert first.happened == second.happened
    assert {key: each.got for key, each in one.clients.items()} == {
        key: each.got for key, each in other.clients.items()
    }
