"""Send a million mutated packets to a live node and see that it stays well.

    python scripts/fuzz_node.py --packets 1000000 --seed 1
    python scripts/fuzz_node.py --replay fuzz-1-3.msgpack

Ends with exit code 1 where the node crashed, printed a traceback, leaked memory or connections, or
did not serve a client that behaves. The round in which that happened is then in a file to replay.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.scenarios.fuzzing.rounds import Outcome, Plan, replay, run_fuzz


def main() -> int:
    parser = argparse.ArgumentParser(description="fuzz a live node")
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=300, help="at the same time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send this round again")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the node's folder here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="accord-fuzz-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.replay is not None:
            failures = replay(options.replay, folder, say)
            print("\n".join(failures) or "no harm done")
            return 1 if failures else 0
        plan = Plan(
            packets=options.packets,
            rounds=options.rounds,
            connections=options.connections,
            seed=options.seed,
        )
        outcome = run_fuzz(plan, folder, say)
        show(outcome)
        for file in outcome.replays[:3]:
            kept = Path.cwd() / file.name
            kept.write_bytes(file.read_bytes())
            print(f"replay with: python scripts/fuzz_node.py --replay {kept.name}")
    return 1 if outcome.failures else 0


def say(line: str) -> None:
    print(line, flush=True)


def show(outcome: Outcome) -> None:
    rounds = outcome.rounds
    packets = sum(each.packets for each in rounds)
    took_s = sum(each.took_s for each in rounds)
    cpu_s = sum(each.cpu_s for each in rounds)
    memory = ", ".join(f"{each.resident_bytes >> 20}" for each in rounds)
    rows = [
        ("packets", f"{packets}"),
        ("counted by the node", f"{sum(each.handled for each in rounds)}"),
        ("connections", f"{sum(each.connections for each in rounds)}"),
        ("packets per second", f"{packets / max(took_s, 0.001):.0f}"),
        ("CPU of the node", f"{cpu_s:.1f} s, {cpu_s / max(packets, 1) * 1e6:.1f} µs per packet"),
        ("memory before", f"{outcome.before.resident_bytes >> 20} MB"),
        ("memory after each round", f"{memory} MB"),
        ("exit code at the end", f"{outcome.exit_code}"),
        ("failures", f"{len(outcome.failures)}"),
    ]
    print()
    for name, value in rows:
        print(f"{name:<28} {value}")
    for failure in outcome.failures[:60]:
        print(f"  {failure}")


if __name__ == "__main__":
    sys.exit(main())
