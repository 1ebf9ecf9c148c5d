"""Many random simulations of nodes of two tiers that negotiate quality; findings with their seeds.

python scripts/tier_quality_runs.py --runs 1000 --jobs 2
python scripts/tier_quality_runs.py --seed 4711
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.many_runs import Counts, many_runs
from tests.sim.tier_quality_runs import TierQualityRun

from accord.sim.run import Outcome


def _run(seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]:
    quality = TierQualityRun(seed, is_checking=is_checking)
    outcome = quality.run()
    return outcome, {"crashes": outcome.crashes, **quality.counts()}


if __name__ == "__main__":
    sys.exit(many_runs("negotiated quality across tiers", _run))
