"""Random filters over domains small enough that they meet, and their order by its definition."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random

from hypothesis import strategies as st
from tests.strategies import trees

from accord.core.admission.filter_index.filters import Filter, covers, intersects
from accord.core.admission.filter_index.tables import Sums
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.tree import And, Attribute, Compare, Expr, In, IsNull, Like, Literal, Or

CHANNELS = ("a", "b", "a/b", "a/b/c", "$s/a", "a/+", "+/b", "a/#", "#", "+", "a/+/c", "$s/#")
NODES = ("", "denver", "orlando")
CONSTANTS: tuple[Value, ...] = (1, 2, 2.5, 7, 2**62 + 1, "a", "ab", "b", True)

names = st.sampled_from(["x", "y", "z"]).map(Attribute)
constants = st.sampled_from(CONSTANTS)
simple: st.SearchStrategy[Expr] = st.one_of(
    st.builds(
        Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), names, constants.map(Literal)
    ),
    st.builds(In, names, st.lists(constants, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Like, names, st.sampled_from(["a%", "ab%", "%", "%b"]), st.booleans()),
    st.builds(IsNull, names, st.booleans()),
)
conjunctions = st.lists(simple, max_size=4).map(lambda items: Predicate(And(tuple(items))))
combinations = st.recursive(
    simple,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(lambda items: And(tuple(items))),
        st.lists(parts, min_size=1, max_size=3).map(lambda items: Or(tuple(items))),
    ),
    max_leaves=5,
).map(Predicate)
channels = st.sampled_from(CHANNELS)
boxes = st.builds(Filter, channels, conjunctions)
filters = boxes | st.builds(Filter, channels, combinations | trees().map(Predicate))


def filter_of(where: str, channel: str = "market") -> Filter:
    return Filter(channel, parse(where))


def random_filter(random: Random) -> Filter:
    """Mostly of one layout, or else any."""
    if random.random() < 0.7:
        return filter_of(f"x > {random.randrange(50)} AND y < {random.randrange(50)}", "a/b")
    conditions = [
        random.choice(
            (
                f"{name} > {random.randrange(9)}",
                f"{name} <> {random.randrange(9)}",
                f"{name} IN ('{random.choice('abc')}', 'd')",
                f"{name} = '{random.choice('abc')}'",
                f"{name} LIKE '{random.choice('abc')}%'",
                f"{name} IS NOT NULL",
            )
        )
        for name in random.sample("uvwxyz", random.randrange(4))
    ]
    return filter_of(" AND ".join(conditions) or "TRUE", random.choice(CHANNELS))


class Brute:
    """Sums by walking over all advertisements."""

    def __init__(self) -> None:
        self.advertised: dict[Hashable, tuple[Filter, int, str]] = {}

    def covered(self, filter_: Filter, nodes: frozenset[str] | None = None) -> Sums:
        return self._sum(self._chosen(lambda other: covers(filter_, other) is True), nodes)

    def intersecting(self, filter_: Filter, nodes: frozenset[str] | None = None) -> Sums:
        if not filter_.terms:
            return Sums(0, 0)
        return self._sum(self._chosen(lambda other: intersects(filter_, other) is not False), nodes)

    def filters(self) -> list[Filter]:
        """Each once, however many advertise it or write it otherwise."""
        found: list[Filter] = []
        for filter_, _, _ in self.advertised.values():
            if not any(is_same(filter_, other) for other in found):
                found.append(filter_)
        return found

    def successors(self, filter_: Filter) -> list[Filter]:
        covered = [each for each in self.filters() if is_above(filter_, each)]
        return [each for each in covered if not any(is_above(other, each) for other in covered)]

    def predecessors(self, filter_: Filter) -> list[Filter]:
        covering = [each for each in self.filters() if is_above(each, filter_)]
        return [each for each in covering if not any(is_above(each, other) for other in covering)]

    def _chosen(self, is_chosen: Callable[[Filter], bool]) -> list[tuple[Filter, int, str]]:
        return [each for each in self.advertised.values() if is_chosen(each[0])]

    def _sum(self, chosen: list[tuple[Filter, int, str]], nodes: frozenset[str] | None) -> Sums:
        rates = [rate for _, rate, node in chosen if nodes is None or node in nodes]
        return Sums(sum(rates), len(rates))


def is_same(one: Filter, other: Filter) -> bool:
    return covers(one, other) is True and covers(other, one) is True


def is_above(one: Filter, other: Filter) -> bool:
    return covers(one, other) is True and not is_same(one, other)
