"""The public predicate: parsed once, printable, comparable, ready to evaluate.

Canonical form of conditions: one form for equal conditions, where that is cheap to find.

Negation is pushed down to the comparisons (in three-valued logic `NOT a < 5` is `a >= 5`),
constants are on the right and computed, conjunctions and disjunctions are flat, sorted and free of
duplicates, disjunctions of equalities become IN. An integral float is written as an integer.
Unknown truth values become FALSE where nothing above them can distinguish the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import cast

from accord.core.model.document import Document
from accord.core.model.errors import PredicateError
from accord.core.model.event import Event
from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, Value
from accord.core.predicates.evaluate import Evaluator, arithmetic, compare, compile_node
from accord.core.predicates.like import compile_pattern, split_prefix
from accord.core.predicates.selector import parse_selector
from accord.core.predicates.tree import (
    FALSE,
    MIRRORED,
    NEGATED,
    TRUE,
    UNKNOWN,
    And,
    Arithmetic,
    ArithmeticOp,
    Attribute,
    Compare,
    CompareOp,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    PathTest,
    XPath,
    sort_key,
)
from accord.core.predicates.xpath import parse_xpath as _parse_xpath


def canonical(node: Expr) -> Expr:
    """Returns an equal condition in canonical form."""
    return _unknown_to_false(_condition(node, is_negated=False))


def _unknown_to_false(node: Expr) -> Expr:
    """Replaces unknown by FALSE wherever only AND and OR are above it."""
    match node:
        case Literal(None):
            return FALSE
        case And(items):
            return _all_of(map(_unknown_to_false, items))
        case Or(items):
            return _any_of(map(_unknown_to_false, items))
    return node


def _condition(node: Expr, *, is_negated: bool) -> Expr:
    match node:
        case Not(item):
            return _condition(item, is_negated=not is_negated)
        case And(items) | Or(items):
            is_all = isinstance(node, And) != is_negated
            parts = [_condition(item, is_negated=is_negated) for item in items]
            return _all_of(parts) if is_all else _any_of(parts)
        case Compare(op, left, right):
            return _compare(NEGATED[op] if is_negated else op, _operand(left), _operand(right))
        case In(operand, values):
            return _in(_operand(operand), values, node.is_negated != is_negated)
        case Like(operand, pattern):
            return _like(_operand(operand), pattern, node.is_negated != is_negated)
        case IsNull(operand):
            return _is_null(_operand(operand), node.is_negated != is_negated)
        case Literal(value):
            return _truth(value, is_negated)
        case Attribute():
            return Compare("=", node, Literal(not is_negated))
        case PathTest() | XPath():
            return Not(node) if is_negated else node
    return UNKNOWN  # a number instead of a truth value


def _truth(value: Value | None, is_negated: bool) -> Expr:
    if not isinstance(value, bool):
        return UNKNOWN
    return TRUE if value != is_negated else FALSE


def _operand(node: Expr) -> Expr:
    """Canonical form of `node` as a value: there, unknown and false differ."""
    match node:
        case Literal(value):
            return Literal(_number(value)) if isinstance(value, float) else node
        case Attribute():
            return node
        case Negative(operand):
            return _negative(_operand(operand))
        case Arithmetic(op, left, right):
            return _arithmetic(op, _operand(left), _operand(right))
    return _condition(node, is_negated=False)


def _arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Literal) and isinstance(right, Literal):
        return Literal(_number(arithmetic(op, left.value, right.value)))
    return UNKNOWN if UNKNOWN in (left, right) else Arithmetic(op, left, right)


def _negative(operand: Expr) -> Expr:
    if isinstance(operand, Literal):
        return Literal(_number(arithmetic("-", 0, operand.value)))
    # Two minus signs cancel, but still require their operand to be a number.
    if isinstance(operand, Negative) and isinstance(operand.operand, Negative | Arithmetic):
        return operand.operand
    return Negative(operand)


def _number(value: float | None) -> Value | None:
    if value is not None and value == int(value) and INTEGER_MIN <= value <= INTEGER_MAX:
        return int(value)
    return value


def _compare(op: CompareOp, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Literal) and isinstance(right, Literal):
        return _truth(compare(op, left.value, right.value), is_negated=False)
    if isinstance(left, Literal) or (not isinstance(right, Literal) and right.text < left.text):
        op, left, right = MIRRORED[op], right, left
    if not isinstance(right, Literal):
        return Compare(op, left, right)
    if right.value is None:
        return UNKNOWN
    if isinstance(right.value, bool):
        return _compare_with_truth(op, left, right.value)
    return Compare(op, left, right)


def _compare_with_truth(op: CompareOp, left: Expr, truth: bool) -> Expr:
    if op not in ("=", "<>"):
        return UNKNOWN
    wanted = truth if op == "=" else not truth
    if isinstance(left, Attribute):
        return Compare("=", left, Literal(wanted))
    return _condition(left, is_negated=not wanted)


def _in(operand: Expr, values: Iterable[Value], is_negated: bool) -> Expr:
    op: CompareOp = "<>" if is_negated else "="
    parts = [_compare(op, operand, _operand(Literal(value))) for value in values]
    return _all_of(parts) if is_negated else _any_of(parts)


def _like(operand: Expr, pattern: str, is_negated: bool) -> Expr:
    prefix, rest = split_prefix(pattern)
    if not rest:
        return _compare("<>" if is_negated else "=", operand, Literal(prefix))
    if isinstance(operand, Literal):
        if not isinstance(operand.value, str):
            return UNKNOWN
        return _truth(compile_pattern(pattern)(operand.value), is_negated)
    return Like(operand, pattern, is_negated)


def _is_null(operand: Expr, is_negated: bool) -> Expr:
    if isinstance(operand, Literal):
        return TRUE if (operand.value is None) != is_negated else FALSE
    return IsNull(operand, is_negated)


def _all_of(parts: Iterable[Expr]) -> Expr:
    return _combine(And, parts, neutral=TRUE, absorbing=FALSE)


def _any_of(parts: Iterable[Expr]) -> Expr:
    return _combine(Or, parts, neutral=FALSE, absorbing=TRUE)


def _combine(
    make: type[And] | type[Or], parts: Iterable[Expr], *, neutral: Expr, absorbing: Expr
) -> Expr:
    flat: dict[Expr, None] = {}
    for part in parts:
        for item in part.items if isinstance(part, make) else (part,):
            flat[item] = None
    flat.pop(neutral, None)
    if absorbing in flat:
        return absorbing
    items = _join_equalities(flat, is_all=make is And)
    if not items:
        return neutral
    return items[0] if len(items) == 1 else make(tuple(sorted(items, key=str)))


def _join_equalities(items: Iterable[Expr], *, is_all: bool) -> list[Expr]:
    """Writes `a = 1 OR a = 2` as `a IN (1, 2)`, and `a <> 1 AND a <> 2` as `a NOT IN (1, 2)`."""
    rest: list[Expr] = []
    values: dict[Expr, dict[Literal, None]] = {}
    for item in items:
        match item:
            case Compare(op, left, Literal(value)) if op == ("<>" if is_all else "="):
                values.setdefault(left, {})[Literal(value)] = None
            case In(operand, listed, negated) if negated == is_all:
                values.setdefault(operand, {}).update((Literal(value), None) for value in listed)
            case _:
                rest.append(item)
    return rest + [_equality(left, list(found), is_all) for left, found in values.items()]


def _equality(left: Expr, found: list[Literal], is_negated: bool) -> Expr:
    if len(found) == 1:
        return Compare("<>" if is_negated else "=", left, found[0])
    values = sorted((cast(Value, literal.value) for literal in found), key=sort_key)
    return In(left, tuple(values), is_negated)


class Predicate:
    """A condition over an event's attributes and XML metadata.

    Two predicates are equal if their canonical trees are; `str()` gives the canonical text, and
    `digest` a short identity that is the same in every process.
    """

    def __init__(self, tree: Expr) -> None:
        self.tree = canonical(tree)

    @cached_property
    def _evaluate(self) -> Evaluator:
        return compile_node(self.tree)

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.tree.text.encode(), digest_size=16).hexdigest()

    def matches(self, event: Event) -> bool:
        return self._evaluate(event.values, event.metadata) is True

    def evaluate(
        self, values: Mapping[str, Value], document: Document | None = None
    ) -> bool | None:
        """True, False, or None for unknown; unknown constants count as false."""
        truth = self._evaluate(values, document)
        return truth if isinstance(truth, bool) else None

    def __str__(self) -> str:
        return self.tree.text

    def __repr__(self) -> str:
        return f"parse({self.tree.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    def __reduce__(self) -> tuple[type[Predicate], tuple[Expr]]:
        return Predicate, (self.tree,)


EVERYTHING = Predicate(TRUE)


def parse(text: str) -> Predicate:
    """Parses a selector; raises PredicateError if it is invalid."""
    _check_text(text)
    return Predicate(parse_selector(text))


def parse_xpath(text: str, namespaces: Mapping[str, str] | None = None) -> Predicate:
    """Parses an XPath 1.0 condition; raises PredicateError if it is invalid."""
    _check_text(text)
    return Predicate(_parse_xpath(text, namespaces))


def _check_text(text: str) -> None:
    """Refuses lone surrogates, which no event's text can contain and nothing could print."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PredicateError(
            "a lone surrogate", text=text, position=error.start, expected="Unicode text"
        ) from None
