"""How thorough a run is."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """`sizes` are numbers of predicates; a measured batch lasts about `batch_s`.

    `checked` events are compared with naive evaluation, `changes` predicates replaced, `calls` of
    the index timed one by one. `contenders` are the brokers to compare, all if empty; so
    are `cases`, groups of them. `connections` is how many are held idle, 0 for as many as usual.
    """

    sizes: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    rounds: int = 5
    batch_s: float = 0.25
    is_quick: bool = False
    workloads: tuple[str, ...] = ()
    checked: int = 25
    changes: int = 1_000
    calls: int = 20_000
    contenders: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    connections: int = 0

    def has_workload(self, name: str) -> bool:
        return not self.workloads or name in self.workloads

    def has_contender(self, name: str) -> bool:
        return not self.contenders or name in self.contenders

    def has_case(self, group: str) -> bool:
        return not self.cases or group in self.cases


QUICK = Options(
    sizes=(1_000, 10_000),
    rounds=3,
    batch_s=0.03,
    is_quick=True,
    checked=4,
    changes=200,
    calls=2_000,
)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
