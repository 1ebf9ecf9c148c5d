"""Hostile clients harm nobody but themselves.

`scripts/fuzz_node.py` does the same for longer.
"""

from __future__ import annotations

from pathlib import Path

from tests.brokers import accord_only
from tests.scenarios.fuzzing.rounds import Plan, run_fuzz


@accord_only
def test_node_stays_well_under_mutated_packets(tmp_path: Path) -> None:
    plan = Plan(packets=10_000, rounds=2, connections=60, seed=1, checks_memory=False)
    outcome = run_fuzz(plan, tmp_path)
    assert outcome.failures == []
    assert sum(each.packets for each in outcome.rounds) >= 10_000
    assert all(each.handled > 0 for each in outcome.rounds)
