"""Kill a loaded node with SIGKILL many times and see whether anything acknowledged is lost.

    python scripts/kill_loop.py --kills 50 --seed 1

Ends with a table of what happened, and with exit code 1 where something was lost, repeated or
out of order. With `--pipeline` the node's pipeline runs too and is killed as well, alone and
together with the node, and in the end the archive must have just what the journal has.
`--keep DIR` leaves the node's folder and output there.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.scenarios.kills.command import options_of, show, working_in
from tests.scenarios.kills.outcome import Outcome
from tests.scenarios.kills.run import Plan, run_kills


def main() -> int:
    about = "kill -9 a loaded node, again and again"
    parser = options_of(about, kills=50, life_s=1.5, rate_hz=100, rate_of="each publisher")
    parser.add_argument("--pipeline", action="store_true", help="kill its pipeline, too")
    options = parser.parse_args()
    plan = Plan(kills=options.kills, seed=options.seed, life_s=options.life, rate_hz=options.rate)
    with working_in(options.keep) as (folder, say):
        if options.pipeline:
            from tests.scenarios.kills.whole import run_whole_kills  # noqa: PLC0415 - needs Spark

            outcome = run_whole_kills(plan, folder, say)
        else:
            outcome = run_kills(plan, folder, say)
    show(rows_of(outcome), outcome.failures()[:40])
    return 1 if outcome.failures() else 0


def rows_of(outcome: Outcome) -> list[tuple[str, object]]:
    kills = ", ".join(f"{count} {how}" for how, count in outcome.kills.items())
    return [
        ("kills", f"{sum(outcome.kills.values())} ({kills})"),
        ("starts", f"{outcome.starts}, the slowest {outcome.slowest_start_s:.2f} s"),
        ("sessions resumed", f"{outcome.reconnects}"),
        ("published", f"{outcome.published}, sent again {outcome.resent}"),
        ("acknowledged", f"{outcome.acknowledged}, refused {outcome.refused}"),
        ("kept and acknowledged", f"{outcome.kept}"),
        ("in the journal", f"{outcome.events}, of them again {outcome.kept_again}"),
        ("  again with QoS 2", f"{outcome.kept_again_at_qos_2}"),
        ("delivered", f"{outcome.deliveries}, of them again {outcome.delivered_again}"),
        ("subscribed and unsubscribed", f"{outcome.churn_rounds} times"),
        ("lost from the journal", f"{len(outcome.lost_events)}"),
        ("lost to subscribers", f"{len(outcome.lost_messages)}"),
        ("QoS 2 messages repeated", f"{len(outcome.repeated)}"),
        ("out of order", f"{len(outcome.disordered)}"),
        ("retained messages lost", f"{len(outcome.unretained)}"),
        ("rows of the archive", outcome.archived),
        ("other problems", f"{len(outcome.problems)}"),
    ]


if __name__ == "__main__":
    sys.exit(main())
