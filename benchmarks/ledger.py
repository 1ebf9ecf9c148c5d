"""What the ledger costs: the same node under the same load, with it and without, in turns."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from time import sleep
from typing import Final

from benchmarks.aims import Aim
from benchmarks.contenders import Broker, Setup, running
from benchmarks.contents import ONE
from benchmarks.load import Shape
from benchmarks.options import Options, progress
from benchmarks.race import Case, attempt, complete
from benchmarks.report import Table, number, significant

GROUP: Final = "ledger"
_SETUP: Final = Setup("ledger", has_ledger_switch=True)
_CASES: Final = (
    Case(Shape("1→1"), 100, 0, level=5, group=GROUP, name="no properties"),
    Case(Shape("1→1"), 100, 0, level=5, group=GROUP, name=ONE.name, content=ONE),
    Case(Shape("1→1"), 100, 1, level=5, group=GROUP, name=f"QoS 1, {ONE.name}", content=ONE),
)
_MOST: Final = 0.05
# Its cost is small: it takes more rounds than others to see it.
_TIMES_ROUNDS: Final = 2
_BURST_S: Final = 0.5
_QUICK_BURST_S: Final = 0.2
_SWITCH_S: Final = 0.05


@dataclass
class Compared:
    """CPU µs per message, round by round."""

    on_us: list[float] = field(default_factory=list)
    off_us: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        """What it adds, by what there is without it: the median of all rounds."""
        return median(on / off - 1 for on, off in zip(self.on_us, self.off_us, strict=True))


def measure(options: Options) -> tuple[Table, list[Aim]]:
    table = Table(
        "CPU µs per message with the ledger and without", ["node", "case", "on", "off", "on by off"]
    )
    aims = []
    with running(options, suits=lambda each: each.has_predicates, setup=_SETUP) as contenders:
        for case in _CASES:
            for broker in contenders.brokers:
                progress(f"ledger: {case.name}, {broker.name}")
                compared = Compared()
                troubles = attempt(
                    {broker.name: broker},
                    lambda each, case=case, compared=compared: _compare(  # type: ignore[misc]
                        each, case, compared, options
                    ),
                )
                table.notes += [f"{name}, {case.name}: {why}." for name, why in troubles.items()]
                if not troubles:
                    on_us, off_us = median(compared.on_us), median(compared.off_us)
                    share = f"{compared.share:+.1%}"
                    table.add(
                        broker.name, case.name, significant(on_us), significant(off_us), share
                    )
                    aims.append(
                        Aim(
                            f"{broker.name}: ledger, {case.name}",
                            f"≤ {_MOST:.0%} of the path",
                            f"{share}, {number(on_us, 3)} beside {number(off_us, 3)} µs",
                            compared.share <= _MOST,
                        )
                    )
    return table, aims


def _compare(broker: Broker, case: Case, compared: Compared, options: Options) -> None:
    burst_s = _QUICK_BURST_S if options.is_quick else _BURST_S
    with closing(case.load(broker)) as load:
        for _ in range(3):
            burst = complete(load.run(3 * load.window))
        count = int(burst.published / burst.wall_s * burst_s)

        def cost_us(*, is_on: bool) -> float:
            os.kill(broker.process_id, signal.SIGUSR2 if is_on else signal.SIGUSR1)
            sleep(_SWITCH_S)
            before_s = broker.cpu_s()
            burst = complete(load.run(count))
            return (broker.cpu_s() - before_s) * 1e6 / burst.delivered

        for _ in range(_TIMES_ROUNDS * options.rounds):
            # On, off, off, on: whatever drifts strikes both.
            spent = [cost_us(is_on=is_on) for is_on in (True, False, False, True)]
            compared.on_us.append((spent[0] + spent[3]) / 2)
            compared.off_us.append((spent[1] + spent[2]) / 2)
        load.settle()
