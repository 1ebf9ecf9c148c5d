"""Covering at scale: one predicate against many, with `Relations` and one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Final

from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import And, Attribute, Compare, Literal
from accord.predicates import Related, Relations, covers, intersects
from benchmarks.measure import Stopwatch, WrongAnswerError, apart, no_collection, time_of
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant
from benchmarks.workloads import WORKLOADS, Keyed, Workload, ready

ABOUT: Final = (
    "One predicate against many: which of them cover it, which does it cover, which does it "
    "intersect. `Relations` beside a loop over all with `covers` or `intersects`; CPU time. The "
    "asking predicates are members, members with a constraint less and members with one more. "
    "Answers were checked to be the same."
)
_SIZE: Final = 100_000
_QUICK_SIZE: Final = 2_000
_PROBES: Final = 60
_CHANGES: Final = 500
# The loop takes seconds per question: it is asked once with all members, and some more with few.
_CHECKED_PROBES: Final = 9
_CHECKED_MEMBERS: Final = 1_000

# On a name that no member has, and after all others in canonical order.
_NARROWING: Final = Compare(">", Attribute("zone"), Literal(0))

Question = Callable[[Predicate], Related]
Test = Callable[[Predicate, Predicate], bool | None]

_TESTS: Final[dict[str, Test]] = {
    "covering": covers,
    "covered_by": lambda member, asked: covers(asked, member),
    "intersecting": intersects,
}


@dataclass(frozen=True)
class Answered:
    question: str
    found: float
    query_us: float
    loop_us: float


@dataclass(frozen=True)
class Measured:
    workload: str
    size: int
    add_us: float
    remove_us: float
    add_again_us: float
    answers: list[Answered]


def run(options: Options) -> list[Table]:
    size = _QUICK_SIZE if options.is_quick else _SIZE
    measured = [
        _measured(workload, size)
        for workload in WORKLOADS
        if workload.name in ("siena", "siena_eq", "rein_eq")
        and workload.distribution == "uniform"
        and options.has_workload(workload.name)
    ]
    return [_questions(measured), _upkeep(measured)]


def _measured(workload: Workload, size: int) -> Measured:
    progress(f"covering: {workload.name}, {size:,} predicates")
    return apart(measure, workload, size)


def measure(workload: Workload, size: int) -> Measured:
    with no_collection():
        members = list(workload.predicates(size))
    relations: Relations = Relations()
    adding = time_of(lambda: _add(relations, members))
    probes = _probes(members)
    questions: dict[str, Question] = {
        "covering": relations.covering,
        "covered_by": relations.covered_by,
        "intersecting": relations.intersecting,
    }
    answers = [_ask(name, question, members, probes) for name, question in questions.items()]
    chosen = members[:: max(1, size // _CHANGES)]
    removing = time_of(lambda: _remove(relations, chosen))
    again = time_of(lambda: _add(relations, chosen))
    return Measured(
        workload=workload.name,
        size=size,
        add_us=adding.cpu_s * 1e6 / size,
        remove_us=removing.cpu_s * 1e6 / len(chosen),
        add_again_us=again.cpu_s * 1e6 / len(chosen),
        answers=answers,
    )


def _add(relations: Relations, predicates: Sequence[Keyed]) -> None:
    for key, predicate in predicates:
        relations.add(key, predicate)


def _remove(relations: Relations, predicates: Sequence[Keyed]) -> None:
    for key, _ in predicates:
        relations.remove(key)


def _probes(members: Sequence[Keyed]) -> list[Predicate]:
    """In turns a member, something wider and something narrower, so that each question finds."""
    step = len(members) // _PROBES
    chosen = [predicate for _, predicate in members[::step]][:_PROBES]
    return [_varied(predicate, number % 3) for number, predicate in enumerate(chosen)]


def _varied(predicate: Predicate, kind: int) -> Predicate:
    tree = predicate.tree
    assert isinstance(tree, And)
    if kind == 0:
        return predicate
    return ready([*tree.items[1:]] if kind == 1 else [*tree.items, _NARROWING])


def _ask(
    name: str, question: Question, members: Sequence[Keyed], probes: Sequence[Predicate]
) -> Answered:
    found: list[Related] = []
    spent: list[float] = []
    for probe in probes:
        with Stopwatch() as watch:
            found.append(question(probe))
        spent.append(watch.cpu_s)
    with Stopwatch() as watch:
        expected = _loop(_TESTS[name], members, probes[0])
    _check(name, found[0], expected)
    some = members[:: max(1, len(members) // _CHECKED_MEMBERS)]
    for probe, related in zip(probes[:_CHECKED_PROBES], found, strict=False):
        _check(name, related, _loop(_TESTS[name], some, probe))
    yes = mean(len(related.yes) for related in found)
    return Answered(name, yes, median(spent) * 1e6, watch.cpu_s * 1e6)


def _loop(test: Test, members: Sequence[Keyed], asked: Predicate) -> dict[int, bool | None]:
    return {key: test(predicate, asked) for key, predicate in members}


def _check(name: str, related: Related, expected: dict[int, bool | None]) -> None:
    yes, unknown = set(related.yes), set(related.unknown)
    for key, answer in expected.items():
        if (key in yes, key in unknown) != (answer is True, answer is None):
            raise WrongAnswerError(f"{name}: differs from the loop, which has {answer} for {key}")


def _questions(measured: Sequence[Measured]) -> Table:
    columns = ["workload", "predicates", "question", "found", "Relations µs", "loop µs", "times"]
    table = Table("Questions", columns)
    for each in measured:
        for answer in each.answers:
            table.add(
                each.workload,
                number(each.size),
                answer.question,
                significant(answer.found),
                significant(answer.query_us),
                significant(answer.loop_us),
                significant(answer.loop_us / answer.query_us),
            )
    table.notes = [f"Relations: median of {_PROBES} questions; the loop: one of them."]
    return table


def _upkeep(measured: Sequence[Measured]) -> Table:
    table = Table("Upkeep", ["workload", "predicates", "add µs", "remove µs", "add again µs"])
    for each in measured:
        times = map(significant, (each.add_us, each.remove_us, each.add_again_us))
        table.add(each.workload, number(each.size), *times)
    table.notes = ["add: mean while building; remove, add again: at full size."]
    return table
