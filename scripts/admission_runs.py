"""Many random simulations of nodes that admit subscriptions; each finding comes with its seed.

python scripts/admission_runs.py --runs 1000 --jobs 2
python scripts/admission_runs.py --seed 4711
"""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.sim.admission_runs import run


def main() -> int:
    parser = argparse.ArgumentParser(description="random simulations of admission")
    parser.add_argument("--runs", type=int, default=1_000, help="how many (default: 1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="just this one, with all invariants checked")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default: 2)")
    options = parser.parse_args()
    if options.seed is not None:
        outcome, _ = run(options.seed)
        print("\n".join(outcome.report()) if outcome.found else "nothing was found")
        return 1 if outcome.found else 0
    began_s = time.monotonic()
    failed = 0
    totals: dict[str, int] = {}
    seeds = range(options.first, options.first + options.runs)
    with Pool(options.jobs) as pool:
        results = pool.imap_unordered(_run, seeds, chunksize=8)
        for done, (found, counts) in enumerate(results, start=1):
            failed += bool(found)
            for what, count in counts.items():
                totals[what] = totals.get(what, 0) + count
            if found:
                print(found, flush=True)
            if done % 100 == 0 or done == options.runs:
                seen = ", ".join(f"{count:,} {what}" for what, count in totals.items())
                spent_s = time.monotonic() - began_s
                print(f"{done} runs, {failed} failed, {spent_s:.0f} s; {seen}", flush=True)
    return 1 if failed else 0


def _run(seed: int) -> tuple[str, dict[str, int]]:
    outcome, checker = run(seed, is_checking=False)
    found = "\n".join(outcome.report()) if outcome.found else ""
    counts = {str(state): count for state, count in checker.counts.items() if count}
    return found, {**counts, "promises in the end": checker.held, "crashes": outcome.crashes}


if __name__ == "__main__":
    sys.exit(main())
