"""Many random simulations of persistent channels in two tiers; each finding comes with its seed.

python scripts/persistent_tier_runs.py --runs 1000 --jobs 2
python scripts/persistent_tier_runs.py --seed 4711
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.many_runs import Counts, many_runs
from tests.sim.persistent_tier_runs import run

from accord.sim.run import Outcome


def _run(seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]:
    outcome, ground, checker = run(seed, is_checking=is_checking)
    return outcome, {
        "subscriptions": checker.clients,
        "events at secondary nodes": checker.at_children,
        "events of the past": ground.handed,
        "kept by two parents": ground.again,
        "nodes missed": ground.missed,
        "changes of parents": checker.switches,
        "shed": checker.shed,
        "crashes": outcome.crashes,
    }


if __name__ == "__main__":
    sys.exit(many_runs("persistent channels in two tiers", _run))
