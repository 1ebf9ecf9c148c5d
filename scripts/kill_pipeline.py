"""Kill a pipeline that archives a growing journal many times, and see what the archive has.

    python scripts/kill_pipeline.py --kills 20 --seed 1

Kills hit the driver's Python and its Java in turn, also while it starts and right after files were
written. Ends with a table of what happened, and with exit code 1 where the archive is not just
what the journal has. `--keep DIR` leaves journal, archive and output there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.pipeline.kills.run import Outcome, Plan, run_kills


def main() -> int:
    parser = argparse.ArgumentParser(description="kill -9 an archiving pipeline, again and again")
    parser.add_argument("--kills", type=int, default=20, help="how often (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument("--life", type=float, default=2.0, metavar="S", help="at most (2 s)")
    parser.add_argument("--rate", type=int, default=2_000, metavar="HZ", help="of records")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave all files here")
    options = parser.parse_args()
    plan = Plan(kills=options.kills, seed=options.seed, life_s=options.life, rate_hz=options.rate)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="accord-kills-") as folder:
        if options.keep is not None:
            options.keep.mkdir(parents=True)
        outcome = run_kills(plan, options.keep or Path(folder), lambda line: _say(began_s, line))
    show(outcome, time.monotonic() - began_s)
    return 1 if outcome.failures() else 0


def _say(began_s: float, line: str) -> None:
    print(f"{time.monotonic() - began_s:6.1f} s  {line}", flush=True)


def show(outcome: Outcome, took_s: float) -> None:
    kills = ", ".join(f"{count} {hit}" for hit, count in outcome.kills.items() if count)
    rows = [
        ("kills", f"{sum(outcome.kills.values())} ({kills})"),
        ("starts", f"{outcome.starts}, the slowest {outcome.slowest_start_s:.1f} s"),
        ("records in the journal", f"{outcome.records}"),
        ("  events", f"{outcome.events}"),
        ("  rows of the ledger", f"{outcome.ledger_rows}"),
        ("files of the archive", f"{outcome.files}, besides {outcome.orphans} of no table"),
        ("rows lost", f"{outcome.lost}"),
        ("rows repeated", f"{outcome.repeated}"),
        ("rows that differ", f"{outcome.other}"),
        ("Java left behind", f"{outcome.java_left}"),
        ("took", f"{took_s:.0f} s"),
    ]
    print()
    for name, value in rows:
        print(f"{name:<28} {value}")
    for failure in outcome.failures():
        print(f"  {failure}")
    for problem in sorted(set(outcome.problems)):
        print(f"  told by a driver: {problem}")


if __name__ == "__main__":
    sys.exit(main())
