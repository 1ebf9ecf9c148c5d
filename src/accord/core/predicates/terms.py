"""Disjunctive normal form of a predicate, used by the index and the relations.

A term is a conjunction. Its conditions on single attributes are one `ValueSet` each, tests on XML
paths are separate (see `tree`: they can't be merged), and the rest remains as nodes, which Python
evaluates after an index has checked single attributes. For a `LIKE` with a literal prefix, the set
is slightly too large and the node also stays in `rest`.

A predicate whose disjunctions would multiply beyond `MAX_TERMS` keeps them in `rest` undivided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from accord.core.model.document import Document
from accord.core.model.values import Kind, Value
from accord.core.predicates import value_sets
from accord.core.predicates.evaluate import Evaluator, compile_node
from accord.core.predicates.like import pattern_weight, split_prefix
from accord.core.predicates.tree import (
    And,
    Attribute,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    PathTest,
    render_name,
    walk,
)
from accord.core.predicates.value_sets import Range, ValueSet

MAX_TERMS: Final = 16
_ALL_NUMBERS: Final[Range] = (value_sets.LOWEST[Kind.NUMBER], None)

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Term:
    """True for events whose attributes are in `sets`, and for which `paths` and `rest` are true."""

    sets: Mapping[str, ValueSet] = field(default_factory=dict)
    paths: tuple[PathTest, ...] = ()
    rest: tuple[Expr, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether `sets` express the whole term."""
        return not self.paths and not self.rest

    def both(self, other: Term) -> Term | None:
        """The conjunction, or None if no event can satisfy it."""
        merged = dict(self.sets)
        for name, allowed in other.sets.items():
            merged[name] = merged[name] & allowed if name in merged else allowed
            if merged[name].is_empty:
                return None
        return Term(merged, _joined(self.paths, other.paths), _joined(self.rest, other.rest))


def _joined(left: tuple[_Item, ...], right: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys((*left, *right)))


def to_terms(node: Expr) -> list[Term]:
    """Terms whose disjunction matches exactly what the canonical tree `node` does."""
    if isinstance(node, Or):
        return _disjunction(node)
    if isinstance(node, And):
        return _conjunction(node)
    term = _plain_conjunction((node,))
    return [] if term is None else [term]


def _conjunction(node: And) -> list[Term]:
    term = _plain_conjunction(item for item in node.items if not isinstance(item, Or))
    terms = [] if term is None else [term]
    undivided: list[Expr] = []
    for item in node.items:
        if isinstance(item, Or):
            alternatives = to_terms(item)
            if len(terms) * len(alternatives) > MAX_TERMS:
                undivided.append(item)
                continue
            combined = (term.both(other) for term in terms for other in alternatives)
            terms = [term for term in combined if term is not None]
    rest = tuple(undivided)
    return [Term(term.sets, term.paths, (*term.rest, *rest)) for term in terms]


def _disjunction(node: Or) -> list[Term]:
    terms = [term for item in node.items for term in to_terms(item)]
    merged: dict[str, ValueSet] = {}
    others: list[Term] = []
    for term in terms:
        if term.is_exact and len(term.sets) == 1:
            ((name, allowed),) = term.sets.items()
            merged[name] = merged[name] | allowed if name in merged else allowed
        else:
            others.append(term)
    terms = [*others, *(Term({name: allowed}) for name, allowed in merged.items())]
    return terms if len(terms) <= MAX_TERMS else [Term(rest=(node,))]


def _plain_conjunction(items: Iterable[Expr]) -> Term | None:
    """Conditions without OR form one term, or none if they contradict each other."""
    bounds: dict[str, Range] = {}
    merged: dict[str, ValueSet] = {}
    paths: list[PathTest] = []
    rest: list[Expr] = []
    for item in items:
        if isinstance(item, Compare) and _narrow(bounds, item):
            continue
        if isinstance(item, PathTest):
            paths.append(item)
        elif isinstance(item, Literal):
            if item.value is not True:
                return None
        elif (about := _about_attribute(item)) is None:
            rest.append(item)
        else:
            name, allowed, is_exact = about
            if not is_exact:
                rest.append(item)
            merged[name] = merged[name] & allowed if name in merged else allowed
    for name, (low, high) in bounds.items():
        if high is not None and low >= high:
            return None
        allowed = value_sets.of_kind(Kind.NUMBER, (low, high))
        merged[name] = merged[name] & allowed if name in merged else allowed
    if any(allowed.is_empty for allowed in merged.values()):
        return None
    return Term(merged, tuple(paths), tuple(rest))


def _narrow(bounds: dict[str, Range], node: Compare) -> bool:
    """Adds a comparison with a number, by far the most frequent condition; else returns False."""
    left, right, op = node.left, node.right, node.op
    if not isinstance(left, Attribute) or not isinstance(right, Literal) or op == "<>":
        return False
    value = right.value
    if type(value) is not int and type(value) is not float:
        return False
    low, high = bounds.get(left.name, _ALL_NUMBERS)
    after = None if op in ("<", ">=") else value_sets.successor(value)
    if op in (">", ">=", "="):
        start = after if op == ">" else value
        if start is None:
            return False
        low = max(low, start)
    if op in ("<", "<=", "="):
        end = value if op == "<" else after
        high = end if high is None else high if end is None else min(high, end)
    bounds[left.name] = low, high
    return True


def _about_attribute(node: Expr) -> tuple[str, ValueSet, bool] | None:
    """The attribute that `node` tests, what it allows, and whether that is exact."""
    if isinstance(node, Compare):
        if isinstance(node.left, Attribute) and isinstance(node.right, Literal):
            assert node.right.value is not None
            return node.left.name, value_sets.compared(node.op, node.right.value), True
    elif isinstance(node, In | IsNull | Like) and isinstance(node.operand, Attribute):
        name = node.operand.name
        if isinstance(node, In):
            members = value_sets.none_of if node.is_negated else value_sets.one_of
            return name, members(node.values), True
        if isinstance(node, IsNull):
            return name, value_sets.NOT_NULL if node.is_negated else value_sets.NULL, True
        return name, *_alike(node)
    return None


def _alike(node: Like) -> tuple[ValueSet, bool]:
    prefix, wildcards = split_prefix(node.pattern)
    alike = value_sets.with_prefix(prefix)
    if wildcards == "%":
        return value_sets.with_prefix("") - alike if node.is_negated else alike, True
    return value_sets.with_prefix("") if node.is_negated else alike, False


# One step of work is a simple test, or one pass over this much text.
TEXT_PER_STEP: Final = 64


class Rest:
    """A conjunction, compiled when first used.

    `weight` is the number of passes over the texts of an event: with their length it gives the
    cost, so that a limit on work holds for long texts too.
    """

    __slots__ = ("_evaluate", "_nodes", "weight")

    def __init__(self, nodes: tuple[Expr, ...]) -> None:
        self._nodes = nodes
        self._evaluate: Evaluator | None = None
        patterns = (node for root in nodes for node in walk(root) if isinstance(node, Like))
        self.weight = sum(pattern_weight(node.pattern) for node in patterns)

    def __call__(self, values: Mapping[str, Value], document: Document | None) -> Value | None:
        if self._evaluate is None:
            self._evaluate = compile_node(And(self._nodes))
        return self._evaluate(values, document)


def rest_of(term: Term) -> Rest | None:
    """The part of `term` that its sets do not express, or None if they express it all."""
    nodes = (*term.paths, *term.rest)
    return Rest(nodes) if nodes else None


def index_use(tree: Expr) -> str:
    """What an index can do with a predicate before evaluating it."""
    terms = to_terms(tree)
    if not terms:
        return "drops it, no event can match"
    narrowing = [_narrowing(term) for term in terms]
    if not all(narrowing):
        return "looks at it for every event on its channels"
    names = ", ".join(sorted({name for names in narrowing for name in names}))
    rest = " and ".join(sorted({node.text for term in terms for node in term.rest}))
    return f"narrows by {names}" + (f", then evaluates {rest}" if rest else "")


def _narrowing(term: Term) -> list[str]:
    """What an event must have for the term to match."""
    names = [render_name(name) for name, allowed in term.sets.items() if not allowed.has_null]
    return names + [test.path for test in term.paths]
