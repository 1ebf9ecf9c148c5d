"""Many random simulations of nodes that negotiate quality; findings come with their seeds.

python scripts/negotiation_runs.py --runs 1000 --jobs 2
python scripts/negotiation_runs.py --seed 4711
"""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.negotiation_runs import QualityRun, run

_COUNTS = ("changes", "crashes", "expectations", "advice", "acts", "withdrawn")


def main() -> int:
    parser = argparse.ArgumentParser(description="random simulations of negotiated quality")
    parser.add_argument("--runs", type=int, default=1_000, help="how many (default: 1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="just this one, with all invariants checked")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default: 2)")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = run(options.seed, is_checking=True)
        print("\n".join(outcome.report()) if outcome.found else "nothing was found")
        return 1 if outcome.found else 0
    began_s = time.monotonic()
    failed = 0
    totals = dict.fromkeys(_COUNTS, 0)
    seeds = range(options.first, options.first + options.runs)
    with Pool(options.jobs) as pool:
        results = pool.imap_unordered(_run, seeds, chunksize=4)
        for done, (found, counts) in enumerate(results, start=1):
            failed += bool(found)
            for name, count in counts.items():
                totals[name] += count
            if found:
                print(found, flush=True)
            if done % 100 == 0:
                spent_s = time.monotonic() - began_s
                print(f"{done} runs, {failed} failed, {spent_s:.0f} s", flush=True)
    counted = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    print(f"{options.runs} runs, {failed} failed, {time.monotonic() - began_s:.0f} s: {counted}")
    return 1 if failed else 0


def _run(seed: int) -> tuple[str, dict[str, int]]:
    quality = QualityRun(seed)
    outcome = quality.run()
    found = "\n".join(outcome.report()) if outcome.found else ""
    return found, {"crashes": outcome.crashes, **quality.counts()}


if __name__ == "__main__":
    sys.exit(main())
