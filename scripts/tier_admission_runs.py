"""Many random simulations of two tiers that admit subscriptions; each finding comes with its seed.

python scripts/tier_admission_runs.py --runs 1000 --jobs 2
python scripts/tier_admission_runs.py --seed 4711
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.many_runs import Counts, many_runs
from tests.sim.tier_admission_runs import run

from accord.sim.run import Outcome


def _run(seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]:
    outcome, checker = run(seed, is_checking=is_checking)
    counts = {str(state): count for state, count in checker.counts.items() if count}
    return outcome, {
        **counts,
        "promises in the end": checker.held,
        "carried for children": checker.carried,
        "switches": checker.switches,
        "crashes": outcome.crashes,
    }


if __name__ == "__main__":
    sys.exit(many_runs("admission across tiers", _run))
