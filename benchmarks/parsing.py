"""What a predicate costs before it is matched: parsing its text, finding its canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accord.core.predicates.evaluate import compile_node
from accord.core.predicates.predicate import Predicate, parse
from benchmarks.measure import Span, WrongAnswerError, alternate, no_collection
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant
from benchmarks.workloads import WORKLOADS, Workload

ABOUT: Final = (
    "Predicates as selector text, parsed with `parse`; the part of it that makes the tree "
    "canonical; and compiling the tree to a function, as naive evaluation needs it. CPU time."
)
_TEXTS: Final = 10_000
_QUICK_TEXTS: Final = 200


def run(options: Options) -> list[Table]:
    columns = ["workload", "texts", "characters", "parse µs", "canonical µs", "compile µs"]
    table = Table("Per predicate", columns)
    count = _QUICK_TEXTS if options.is_quick else _TEXTS
    for workload in WORKLOADS:
        if workload.distribution == "uniform" and options.has_workload(workload.name):
            progress(f"parsing: {workload.name}, {count:,} texts")
            table.add(workload.name, number(count), *_measure(workload, count))
    return [table]


def _measure(workload: Workload, count: int) -> list[str]:
    predicates = [predicate for _, predicate in workload.predicates(count)]
    texts = [str(predicate) for predicate in predicates]
    with no_collection():
        _check(texts[:100], predicates[:100])
        spans = alternate(
            {
                "parse": lambda: [parse(text) for text in texts],
                "canonical": lambda: [Predicate(predicate.tree) for predicate in predicates],
                "compile": lambda: [compile_node(predicate.tree) for predicate in predicates],
            },
            rounds=1,
        )
    length = sum(map(len, texts)) / count
    return [number(length), *(_each(spans[name], count) for name in spans)]


def _check(texts: Sequence[str], predicates: Sequence[Predicate]) -> None:
    for text, predicate in zip(texts, predicates, strict=True):
        if parse(text) != predicate:
            raise WrongAnswerError(f"{text} does not parse to the tree it was made of")


def _each(span: Span, count: int) -> str:
    return significant(span.cpu_s * 1e6 / count)
