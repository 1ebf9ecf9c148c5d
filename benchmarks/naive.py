"""Naive matching, each predicate in turn: the yardstick for speed, and the judge of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence

from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import And, Attribute, Compare, Expr, Like, Literal
from benchmarks.measure import WrongAnswerError
from benchmarks.workloads import Keyed

Match = Callable[[Event], Sequence[Hashable]]


class Naive:
    """Evaluates every predicate for every event."""

    def __init__(self, predicates: Iterable[Keyed]) -> None:
        self.predicates = list(predicates)
        for _, predicate in self.predicates:
            predicate.evaluate({})  # compiled on first use, which is not what is timed

    def match(self, event: Event) -> list[int]:
        values = event.values
        return [key for key, predicate in self.predicates if predicate.evaluate(values) is True]


def check(name: str, match: Match, naive: Naive, events: Iterable[Event]) -> None:
    """Raises unless `match` finds of the predicates that `naive` knows the same, each once."""
    known = {key for key, _ in naive.predicates}
    for event in events:
        expected = Counter(naive.match(event))
        found = Counter(key for key in match(event) if key in known)
        if found != expected:
            odd = dict((found - expected) + (expected - found))
            raise WrongAnswerError(f"{name}: differs from naive in {odd} for {event.attributes}")


def aimed(event: Event, predicate: Predicate) -> Event:
    """`event` with values changed so that it satisfies the constraints of `predicate`.

    Where matches are rare, random events would only show that nothing is found.
    """
    tree = predicate.tree
    values = dict(event.attributes)
    for item in tree.items if isinstance(tree, And) else (tree,):
        name, value = _satisfying(item)
        values[name] = value
    return Event(channel=event.channel, attributes=values)


def _satisfying(item: Expr) -> tuple[str, Value]:
    match item:
        case Compare(op, Attribute(name), Literal(int(value))):
            return name, value + {"<": -1, ">": 1, "<>": 1}.get(op, 0)
        case Compare(op, Attribute(name), Literal(str(text))):
            return name, text + "~" * (op == "<>")
        case Like(Attribute(name), pattern):
            return name, pattern.replace("%", "")
    raise AssertionError(f"no workload has {item}")
