"""Many random simulations of secondary nodes; each finding comes with its seed.

python scripts/tier_runs.py --runs 1000 --jobs 2
python scripts/tier_runs.py --seed 4711
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.many_runs import Counts, many_runs
from tests.sim.tier_runs import run

from accord.sim.run import Outcome


def _run(seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]:
    outcome, left = run(seed, is_checking=is_checking)
    return outcome, {
        "deliveries": sum(each.delivered for each in outcome.channels.values()),
        "crashes": outcome.crashes,
        "changes of parents": left.switches,
        "copies dropped": left.again,
    }


if __name__ == "__main__":
    sys.exit(many_runs("secondary nodes", _run))
