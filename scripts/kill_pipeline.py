"""Kill a pipeline that archives a growing journal many times, and see what the archive has.

    python scripts/kill_pipeline.py --kills 20 --seed 1

Kills hit the driver's Python and its Java in turn, also while it starts and right after files were
written. Ends with a table of what happened, and with exit code 1 where the archive is not just
what the journal has. `--keep DIR` leaves journal, archive and output there.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.pipeline.kills.run import Outcome, Plan, run_kills
from tests.scenarios.kills.command import options_of, show, working_in


def main() -> int:
    about = "kill -9 an archiving pipeline, again and again"
    parser = options_of(about, kills=20, life_s=2.0, rate_hz=2_000, rate_of="records")
    options = parser.parse_args()
    plan = Plan(kills=options.kills, seed=options.seed, life_s=options.life, rate_hz=options.rate)
    with working_in(options.keep) as (folder, say):
        outcome = run_kills(plan, folder, say)
    told = [f"told by a driver: {problem}" for problem in sorted(set(outcome.problems))]
    show(rows_of(outcome), [*outcome.failures(), *told])
    return 1 if outcome.failures() else 0


def rows_of(outcome: Outcome) -> list[tuple[str, object]]:
    kills = ", ".join(f"{count} {hit}" for hit, count in outcome.kills.items() if count)
    return [
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
    ]


if __name__ == "__main__":
    sys.exit(main())
