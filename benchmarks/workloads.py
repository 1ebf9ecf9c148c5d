"""Predicates and events as the literature on content-based matching generates them.

`siena` follows the generator of SIENA's fast forwarding and CCM: 100 names, 100 values, 3 to 5
constraints on different names, four operators in equal shares, events of 3 to 5 attributes.
`rein` follows REIN and TAMA: 20 attributes, 10 closed intervals half as wide as the domain of
1,000,000, events with all 20. The `_eq` variants add what subscriptions in the field mostly have,
an equality: in `siena_eq` at least one per predicate, in `rein_eq` on a topic of 100 values.

Predicates come in blocks with a seed of their own, so that any part of a million can be made again
without the rest. Trees are built in canonical form already: bringing a million into it would take
longer than all that is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, get_args

from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import And, Attribute, Compare, CompareOp, Expr, Like, Literal
from benchmarks.draws import Distribution, Draw

BLOCK: Final = 1_000

_NAMES: Final = tuple(f"a{number:02}" for number in range(100))
_ATTRIBUTES: Final = tuple(map(Attribute, _NAMES))
_TOPIC: Final = Attribute("topic")
_INTEGER_OPS: Final[tuple[CompareOp, ...]] = ("=", "<>", "<", ">")
_VALUES: Final = 100
_DOMAIN: Final = 1_000_000
_WIDTH: Final = _DOMAIN // 2
_DIMENSIONS: Final = 20
# Equality only, as RabbitMQ's headers exchange has it: few names, so that something matches.
_HEADERS: Final = 10

Keyed = tuple[int, Predicate]


def _words(random: Random) -> Iterator[str]:
    for _ in range(_VALUES):
        yield "".join(random.choices("abcdefgh", k=random.randint(4, 9)))


_WORDS: Final = tuple(_words(Random(0)))


@dataclass(frozen=True)
class Workload:
    """A family of predicates and the events to match them with."""

    name: str
    make_items: Callable[[Draw], list[Expr]]
    make_values: Callable[[Draw], dict[str, Value]]
    distribution: Distribution = "uniform"
    has_equality: bool = False

    def predicates(self, size: int, seed: int = 0) -> Iterator[Keyed]:
        """Predicates number 0 to `size`, with their numbers as keys."""
        for number in range(-(-size // BLOCK)):
            yield from self.block(number, seed)[: size - number * BLOCK]

    def block(self, number: int, seed: int = 0) -> list[Keyed]:
        draw = self._draw(f"block {number}", seed)
        start = number * BLOCK
        return [(key, ready(self.make_items(draw))) for key in range(start, start + BLOCK)]

    def events(self, count: int, seed: int = 0) -> list[Event]:
        draw = self._draw("events", seed)
        return [Event(channel="bench", attributes=self.make_values(draw)) for _ in range(count)]

    def _draw(self, purpose: str, seed: int) -> Draw:
        return Draw(f"{self.name} {self.distribution} {purpose} {seed}", self.distribution)


def ready(items: list[Expr]) -> Predicate:
    """A conjunction as predicate, from items that are canonical and sorted."""
    predicate = Predicate.__new__(Predicate)
    predicate.tree = And(tuple(items)) if len(items) > 1 else items[0]
    return predicate


def _siena(draw: Draw) -> list[Expr]:
    return [_integer_test(draw, number) for number in _some_names(draw)]


def _siena_eq(draw: Draw) -> list[Expr]:
    names = _some_names(draw)
    fixed = draw.random.choice(names)
    return [_integer_test(draw, number, is_equality=number == fixed) for number in names]


def _siena_text(draw: Draw) -> list[Expr]:
    return [_text_test(draw, number) for number in _some_names(draw)]


def _some_names(draw: Draw) -> list[int]:
    return draw.distinct(len(_NAMES), draw.random.randint(3, 5))


def _integer_test(draw: Draw, name: int, *, is_equality: bool = False) -> Expr:
    op = "=" if is_equality else draw.random.choice(_INTEGER_OPS)
    return Compare(op, _ATTRIBUTES[name], Literal(draw.below(_VALUES)))


def _text_test(draw: Draw, name: int) -> Expr:
    """Equal, not equal, a substring or a prefix of three characters."""
    word, attribute = _WORDS[draw.below(_VALUES)], _ATTRIBUTES[name]
    kind = draw.random.randrange(4)
    if kind < 2:
        return Compare("=" if kind else "<>", attribute, Literal(word))
    if kind == 2:
        return Like(attribute, f"{word[:3]}%")
    start = draw.random.randrange(len(word) - 2)
    return Like(attribute, f"%{word[start : start + 3]}%")


def _rein(draw: Draw) -> list[Expr]:
    return _intervals(draw, 10)


def _rein_eq(draw: Draw) -> list[Expr]:
    return [*_intervals(draw, draw.random.randint(3, 5)), _topic(draw)]


def _rein_eq_wide(draw: Draw) -> list[Expr]:
    return [*_intervals(draw, 10), _topic(draw)]


def _intervals(draw: Draw, count: int) -> list[Expr]:
    items: list[Expr] = []
    for name in draw.distinct(_DIMENSIONS, count):
        low = draw.below(_DOMAIN - _WIDTH)
        items.append(Compare("<=", _ATTRIBUTES[name], Literal(low + _WIDTH)))
        items.append(Compare(">=", _ATTRIBUTES[name], Literal(low)))
    return items


def _topic(draw: Draw) -> Expr:
    return Compare("=", _TOPIC, Literal(draw.below(_VALUES)))


def _headers(draw: Draw) -> list[Expr]:
    names = draw.distinct(_HEADERS, draw.random.randint(2, 3))
    return [Compare("=", _ATTRIBUTES[name], Literal(draw.below(_HEADERS))) for name in names]


def _few_integers(draw: Draw) -> dict[str, Value]:
    return {_NAMES[number]: draw.below(_VALUES) for number in _some_names(draw)}


def _few_words(draw: Draw) -> dict[str, Value]:
    return {_NAMES[number]: _WORDS[draw.below(_VALUES)] for number in _some_names(draw)}


def _all_dimensions(draw: Draw) -> dict[str, Value]:
    return {name: draw.below(_DOMAIN) for name in _NAMES[:_DIMENSIONS]}


def _all_and_topic(draw: Draw) -> dict[str, Value]:
    return {**_all_dimensions(draw), "topic": draw.below(_VALUES)}


def _all_headers(draw: Draw) -> dict[str, Value]:
    return {name: draw.below(_HEADERS) for name in _NAMES[:_HEADERS]}


HEADERS: Final = Workload("headers", _headers, _all_headers, has_equality=True)

WORKLOADS: Final = tuple(
    Workload(name, make_items, make_values, distribution, name.find("_eq") > 0)
    for name, make_items, make_values in (
        ("siena", _siena, _few_integers),
        ("siena_text", _siena_text, _few_words),
        ("siena_eq", _siena_eq, _few_integers),
        ("rein", _rein, _all_dimensions),
        ("rein_eq", _rein_eq, _all_and_topic),
        ("rein_eq_10", _rein_eq_wide, _all_and_topic),
    )
    for distribution in get_args(Distribution)
)
