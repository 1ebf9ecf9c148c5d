"""Many random simulations of templates; findings come with their seeds.

python scripts/template_runs.py --runs 10000 --jobs 2
python scripts/template_runs.py --template reliable --seed 4711 --loss 0.5 --nodes 12
"""

from __future__ import annotations

import argparse
import sys
import time
from multiprocessing import Pool
from random import Random

from accord.core.channels.channels import SHIPPED
from accord.core.channels.template import Template
from accord.sim.outcome import Outcome
from accord.sim.templates import END_US, World, template_run

Case = tuple[str, int, float, int, bool]
_COUNTS = ("published", "wanted", "delivered", "lost", "crashes")


def main() -> int:
    parser = argparse.ArgumentParser(description="random simulations of templates")
    parser.add_argument("--runs", type=int, default=1_000, help="how many (default: 1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="just this one, with all invariants checked")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (default: 2)")
    parser.add_argument("--template", choices=sorted(promising()), help="just this one")
    parser.add_argument("--loss", type=float, help="of messages (default: up to 0.5, by the seed)")
    parser.add_argument("--nodes", type=int, help="of the overlay (default: 4 to 12, by the seed)")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.runs)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    names = [options.template] if options.template else sorted(promising())
    is_checking = options.seed is not None
    cases = [
        case(names[seed % len(names)], seed, options.loss, options.nodes, is_checking)
        for seed in seeds
    ]
    return 1 if run_all(cases, options.jobs) else 0


def promising() -> dict[str, type[Template]]:
    """Those that promise something."""
    return {name: template for name, template in SHIPPED.items() if template.promises}


def case(name: str, seed: int, loss: float | None, nodes: int | None, is_checking: bool) -> Case:
    random = Random(f"case {seed}")  # noqa: S311
    chosen_loss = random.choice((0.0, 0.1, 0.3, 0.5)) if loss is None else loss
    chosen_nodes = random.randint(4, 12) if nodes is None else nodes
    return name, seed, chosen_loss, chosen_nodes, is_checking


def run_all(cases: list[Case], jobs: int) -> int:
    """Gives how many failed."""
    began_s = time.monotonic()
    failed = 0
    totals: dict[str, dict[str, int]] = {}
    with Pool(jobs) as pool:
        for done, (name, found, counts) in enumerate(pool.imap_unordered(run, cases), start=1):
            failed += bool(found)
            total = totals.setdefault(name, dict.fromkeys(("runs", *_COUNTS), 0))
            total["runs"] += 1
            for what, count in counts.items():
                total[what] += count
            if found:
                print(found, flush=True)
            if done % 100 == 0:
                spent_s = time.monotonic() - began_s
                print(f"{done} runs, {failed} failed, {spent_s:.0f} s", flush=True)
    for name, total in sorted(totals.items()):
        print(f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in total.items()))
    print(f"{len(cases)} runs, {failed} failed, {time.monotonic() - began_s:.0f} s")
    return failed


def run(chosen: Case) -> tuple[str, str, dict[str, int]]:
    name, seed, loss, nodes, is_checking = chosen
    world = World(loss=loss, nodes=nodes, is_checking=is_checking)
    replay = (
        f"python scripts/template_runs.py --template {name} --seed {seed} "
        f"--loss {loss} --nodes {nodes}"
    )
    outcome = template_run(promising()[name], world, seed, replay=replay).run(END_US)
    found = "\n".join(outcome.report()) if outcome.found else ""
    return name, found, counts_of(outcome)


def counts_of(outcome: Outcome) -> dict[str, int]:
    channels = outcome.channels.values()
    counts = {what: sum(getattr(each, what) for each in channels) for what in _COUNTS[:-1]}
    return {**counts, "crashes": outcome.crashes}


if __name__ == "__main__":
    sys.exit(main())
