"""Many random simulations of overlays; each finding comes with the seed that replays it.

python scripts/sim_runs.py --runs 10000 --jobs 2
python scripts/sim_runs.py --seed 4711
"""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.overlay_runs import run


def main() -> int:
    parser = argparse.ArgumentParser(description="random simulations of overlays")
    parser.add_argument("--runs", type=int, default=1_000, help="how many (default: 1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="just this one, with all invariants checked")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default: 2)")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = run(options.seed)
        print("\n".join(outcome.report()) if outcome.found else "nothing was found")
        return 1 if outcome.found else 0
    began_s = time.monotonic()
    failed = 0
    seeds = range(options.first, options.first + options.runs)
    with Pool(options.jobs) as pool:
        for done, found in enumerate(pool.imap_unordered(_run, seeds, chunksize=8), start=1):
            failed += bool(found)
            if found:
                print(found, flush=True)
            if done % 200 == 0:
                print(
                    f"{done} runs, {failed} failed, {time.monotonic() - began_s:.0f} s", flush=True
                )
    print(f"{options.runs} runs, {failed} failed, {time.monotonic() - began_s:.0f} s")
    return 1 if failed else 0


def _run(seed: int) -> str:
    outcome = run(seed, is_checking=False)
    return "\n".join(outcome.report()) if outcome.found else ""


if __name__ == "__main__":
    sys.exit(main())
