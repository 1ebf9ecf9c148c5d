"""Many random simulations of templates; findings come with their seeds.

python scripts/template_runs.py --runs 10000 --jobs 2
python scripts/template_runs.py --template reliable --seed 4711 --loss 0.5 --nodes 12
python scripts/template_runs.py --template total_order --first 3 --runs 1 --nodes 100 --hours 2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

from msgspec.structs import replace
from tests.sim.many_runs import Counts, many_runs

from accord.core.channels.channels import SHIPPED
from accord.core.channels.template import Template
from accord.sim.best_effort import LossChecker, LossStatistics
from accord.sim.run import Outcome, Simulation
from accord.sim.template_checks import template_run
from accord.sim.template_scenarios import PATIENT, WAITING, TemplateScenario

_COUNTED = ("published", "wanted", "delivered", "lost", "excused", "unreachable")


def promising() -> dict[str, type[Template]]:
    """Those that promise something, by name."""
    return {name: SHIPPED[name] for name in sorted(SHIPPED) if SHIPPED[name].promises}


class Runs:
    """What of each run was asked for; the rest is chosen by its seed."""

    def __init__(
        self, template: str | None, loss: float | None, nodes: int | None, hours: float
    ) -> None:
        self._hours = hours
        self._names = [template] if template else list(promising())
        self._loss = loss
        self._nodes = nodes

    def __call__(self, seed: int, *, is_checking: bool) -> tuple[Outcome, Counts]:
        name, run, outcome = self._run(seed, is_checking=is_checking)
        counts: Counts = {f"{name} runs": 1, f"{name} crashes": outcome.crashes}
        for what in _COUNTED:
            channels = outcome.channels.values()
            counts[f"{name} {what}"] = sum(getattr(each, what) for each in channels)
        for each in run.checkers:
            if isinstance(each, LossChecker):
                counts[f"{name} on ways"] = each.statistics.delivered
                counts[f"{name} expected there"] = round(each.statistics.expected)
                counts[f"{name} variance"] = round(each.statistics.variance)
        return outcome, counts

    def _run(self, seed: int, *, is_checking: bool) -> tuple[str, Simulation, Outcome]:
        random = Random(f"case {seed}")  # noqa: S311
        loss = random.choice((0.0, 0.1, 0.3, 0.5))
        nodes = random.randint(4, 12)
        # Of four seeds each makes another kind of world.
        name = self._names[seed // 4 % len(self._names)]
        world = TemplateScenario(
            loss=loss if self._loss is None else self._loss,
            nodes=nodes if self._nodes is None else self._nodes,
            is_checking=is_checking,
            options=PATIENT if self._hours else random.choice(WAITING),
        )
        if self._hours:
            publish_us = round(self._hours * 3_600_000_000)
            world = replace(world, rate_hz=0.1, publish_us=publish_us, is_long=True)
        replay = (
            f"python scripts/template_runs.py --template {name} --seed {seed} "
            f"--loss {world.loss} --nodes {world.nodes} --hours {self._hours}"
        )
        run = template_run(promising()[name], world, seed, replay=replay)
        return name, run, run.run(world.end_us)


def lossy(counts: Counts) -> list[str]:
    """Templates that lose more than their ways do, by so little that only many runs show it."""
    found = []
    for name in promising():
        shares = LossStatistics(
            delivered=counts.get(f"{name} on ways", 0),
            expected=counts.get(f"{name} expected there", 0),
            variance=counts.get(f"{name} variance", 0),
        )
        if shares.problem:
            found.append(f"{name}, all runs together: {shares.problem}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--template", choices=list(promising()))
    parser.add_argument("--loss", type=float)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--hours", type=float, default=0.0)
    own, sys.argv[1:] = parser.parse_known_args()
    runs = Runs(own.template, own.loss, own.nodes, own.hours)
    what = (
        "templates; also: --template NAME, --loss SHARE, --nodes COUNT (all by the seed if not "
        "given), and --hours COUNT of virtual time: each seed is one long run"
    )
    return many_runs(what, runs, lossy)


if __name__ == "__main__":
    sys.exit(main())
