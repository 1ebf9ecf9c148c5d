"""Kill a loaded node with SIGKILL many times and see whether anything acknowledged is lost.

    python scripts/kill_loop.py --kills 50 --seed 1

Ends with a table of what happened, and with exit code 1 where something was lost, repeated or
out of order. `--keep DIR` leaves the node's folder and output there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.scenarios.kills.outcome import Outcome
from tests.scenarios.kills.run import Plan, run_kills


def main() -> int:
    parser = argparse.ArgumentParser(description="kill -9 a loaded node, again and again")
    parser.add_argument("--kills", type=int, default=50, help="how often (default: 50)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument("--life", type=float, default=1.5, metavar="S", help="at most (1.5 s)")
    parser.add_argument("--rate", type=int, default=100, metavar="HZ", help="of each publisher")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the node's folder here")
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
    kills = ", ".join(f"{count} {how}" for how, count in outcome.kills.items())
    rows = [
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
        ("other problems", f"{len(outcome.problems)}"),
        ("took", f"{took_s:.0f} s"),
    ]
    print()
    for name, value in rows:
        print(f"{name:<28} {value}")
    for failure in outcome.failures()[:40]:
        print(f"  {failure}")


if __name__ == "__main__":
    sys.exit(main())
