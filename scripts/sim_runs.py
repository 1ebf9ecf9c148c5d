"""Many random simulations of overlays; each finding comes with the seed that replays it.

python scripts/sim_runs.py --runs 10000 --jobs 2
python scripts/sim_runs.py --seed 4711
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.many_runs import Counts, many_runs
from tests.sim.overlay_runs import run

from accord.sim.run import Outcome


def _run(seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]:
    return run(seed, is_checking=is_checking), {}


if __name__ == "__main__":
    sys.exit(many_runs("overlays", _run))
