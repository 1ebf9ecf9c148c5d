"""Subscribe with `since` at random moments under load: is anything missing, or there twice?

    python scripts/history_runs.py --runs 100 --seed 1 --rate 500

Starts a node with its pipeline. Ends with a table, and with exit code 1 where something was missing
or came twice.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.brokers import HOST, start_accord
from tests.scenarios.history import Plan, run_history

CONFIG = '[[keep]]\nchannels = ["kept/#"]\n'


def main() -> int:
    parser = argparse.ArgumentParser(description="history, then live, again and again")
    parser.add_argument("--runs", type=int, default=100, help="how often (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument("--rate", type=int, default=500, metavar="HZ", help="events per second")
    options = parser.parse_args()
    plan = Plan(runs=options.runs, seed=options.seed, rate_hz=options.rate)
    began_s = time.monotonic()
    with start_accord(config=CONFIG, extra=["--pipeline"]) as broker:
        outcome = asyncio.run(run_history(f"mqtt://{HOST}:{broker.port}", plan))
    for what, value in (
        ("runs", outcome.runs),
        ("published", outcome.published),
        ("received", outcome.received),
        ("  of the past", outcome.past),
        ("gaps", len(outcome.gaps)),
        ("duplicates", len(outcome.duplicates)),
        ("took", f"{time.monotonic() - began_s:.0f} s"),
    ):
        print(f"{what:20} {value}")
    for failure in outcome.failures()[:20]:
        print(failure)
    return 1 if outcome.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
