"""As many random simulations as one likes, for scripts: findings come with their seeds."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from multiprocessing import Pool
from typing import Final, Protocol

from accord.sim.run import Outcome

_TOLD: Final = 100  # runs between two lines
Counts = dict[str, int]


class Run(Protocol):
    """One run, and what is counted over many of them; it is passed on to other processes."""

    def __call__(self, seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]: ...


def many_runs(what: str, run: Run, judged: Callable[[Counts], list[str]] = lambda _: []) -> int:
    """The exit code. `judged` says what is wrong with all runs together."""
    parser = argparse.ArgumentParser(description=f"random simulations of {what}")
    parser.add_argument("--runs", type=int, default=1_000, help="how many (default: 1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="just this one, with all invariants checked")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default: 2)")
    options = parser.parse_args()
    if options.seed is not None:
        outcome, _ = run(options.seed, is_checking=True)
        print(_found(outcome) or "nothing was found")
        return 1 if outcome.found else 0
    began_s = time.monotonic()
    failed = 0
    totals: Counts = {}
    seeds = range(options.first, options.first + options.runs)
    with Pool(options.jobs) as pool:
        results = pool.imap_unordered(_Reported(run), seeds, chunksize=8)
        for done, (found, counts) in enumerate(results, start=1):
            failed += bool(found)
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
            if found:
                print(found, flush=True)
            if done % _TOLD == 0 or done == options.runs:
                seen = "".join(f", {count:,} {name}" for name, count in totals.items())
                spent_s = time.monotonic() - began_s
                print(f"{done} runs, {failed} failed, {spent_s:.0f} s{seen}", flush=True)
    problems = judged(totals)
    for problem in problems:
        print(problem, flush=True)
    return 1 if failed or problems else 0


class _Reported:
    """One of many, as it comes back from another process."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, seed: int) -> tuple[str, Counts]:
        outcome, counts = self._run(seed, is_checking=False)
        return _found(outcome), counts


def _found(outcome: Outcome) -> str:
    return "\n".join(outcome.report()) if outcome.found else ""
