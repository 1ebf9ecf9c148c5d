"""A node that is killed under load forgets nothing it acknowledged.

`scripts/kill_loop.py` does the same for longer.
"""

from __future__ import annotations

from pathlib import Path

from tests.brokers import accord_only
from tests.scenarios.kills.run import Plan, run_kills


@accord_only
def test_nothing_acknowledged_is_lost_when_the_node_is_killed(tmp_path: Path) -> None:
    plan = Plan(kills=5, seed=1, life_s=0.6, has_long_lives=False)
    outcome = run_kills(plan, tmp_path)
    assert outcome.failures() == []
    assert sum(outcome.kills.values()) == 5
    assert outcome.acknowledged == outcome.published > 0
    assert outcome.kept > 0
    assert outcome.reconnects > 0
