"""Semantics of a canonical tree: `compile_node` turns it into a function of values and document.

Functions return a value, or None for unknown. Truth follows SQL's three-valued logic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from accord.core.model.document import Document
from accord.core.model.values import Kind, Value, kind_of
from accord.core.predicates.like import compile_pattern
from accord.core.predicates.tree import (
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
)
from accord.core.predicates.xpath import compile_xpath

Values = Mapping[str, Value]
Evaluator = Callable[[Values, Document | None], Value | None]

COMPARE: Final[dict[CompareOp, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[dict[ArithmeticOp, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
# Types whose values compare with each other. Booleans have no order and are handled separately.
_COMPARABLE: Final[dict[Kind, frozenset[type]]] = {
    Kind.NUMBER: frozenset((int, float)),
    Kind.STRING: frozenset((str,)),
    Kind.BOOLEAN: frozenset((bool,)),
    Kind.TIMESTAMP: frozenset((datetime,)),
}


def compare(op: CompareOp, left: Value | None, right: Value | None) -> bool | None:
    """Numbers compare by exact value, strings by code point, timestamps by instant."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is not kind_of(right) or (kind is Kind.BOOLEAN and op not in ("=", "<>")):
        return None
    return COMPARE[op](left, right)


def arithmetic(op: ArithmeticOp, left: Value | None, right: Value | None) -> float | None:
    """Computed in floats; unknown without a finite result."""
    if type(left) not in (int, float) or type(right) not in (int, float):
        return None
    try:
        result = _ARITHMETIC[op](float(left), float(right))  # type: ignore[arg-type]
    except ZeroDivisionError:
        return None
    return result if math.isfinite(result) else None


def compile_node(node: Expr) -> Evaluator:
    """Compiles `node` to a function."""
    match node:
        case Literal(value):
            return lambda _values, _document: value
        case Attribute(name):
            return lambda values, _document: values.get(name)
        case Negative(operand):
            return _compile_arithmetic("-", Literal(0), operand)
        case Arithmetic(op, left, right):
            return _compile_arithmetic(op, left, right)
        case Compare(op, Attribute(name), Literal(value)) if value is not None:
            return _compile_comparison(op, name, value)
        case Compare(op, left, right):
            return _compile_comparison_of_two(op, left, right)
        case In(operand, listed):
            return _compile_in(operand, listed, node.is_negated)
        case Like(operand, pattern):
            return _compile_like(operand, pattern, node.is_negated)
        case IsNull(operand):
            return _compile_is_null(operand, node.is_negated)
        case And(items):
            return _compile_junction([compile_node(item) for item in items], decisive=False)
        case Or(items):
            return _compile_junction([compile_node(item) for item in items], decisive=True)
        case Not(item):
            return _compile_not(item)
        case PathTest():
            return _compile_path_test(node)
        case XPath():
            return _compile_xpath(node)
    raise AssertionError(f"no meaning for {node!r}")


def _compile_comparison(op: CompareOp, name: str, constant: Value) -> Evaluator:
    test = COMPARE[op]
    kind = kind_of(constant)
    if kind is Kind.BOOLEAN and op not in ("=", "<>"):
        return lambda _values, _document: None
    comparable = _COMPARABLE[kind]

    def evaluate(values: Values, _document: Document | None) -> bool | None:
        value = values.get(name)
        return test(value, constant) if type(value) in comparable else None

    return evaluate


def _compile_comparison_of_two(op: CompareOp, left: Expr, right: Expr) -> Evaluator:
    a, b = compile_node(left), compile_node(right)
    return lambda values, document: compare(op, a(values, document), b(values, document))


def _compile_arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Evaluator:
    a, b = compile_node(left), compile_node(right)
    return lambda values, document: arithmetic(op, a(values, document), b(values, document))


def _compile_in(operand: Expr, listed: tuple[Value, ...], is_negated: bool) -> Evaluator:
    """`x IN (a, b)` is `x = a OR x = b`: unknown if none is equal and a kind is unlike."""
    inner = compile_node(operand)
    members = {kind: {v for v in listed if kind_of(v) is kind} for kind in map(kind_of, listed)}
    miss = False if len(members) == 1 else None

    def evaluate(values: Values, document: Document | None) -> bool | None:
        value = inner(values, document)
        if value is None or (of_kind := members.get(kind_of(value))) is None:
            return None
        if value in of_kind:
            return not is_negated
        return None if miss is None else is_negated

    return evaluate


def _compile_like(operand: Expr, pattern: str, is_negated: bool) -> Evaluator:
    inner, is_like = compile_node(operand), compile_pattern(pattern)

    def evaluate(values: Values, document: Document | None) -> bool | None:
        value = inner(values, document)
        return is_like(value) != is_negated if isinstance(value, str) else None

    return evaluate


def _compile_is_null(operand: Expr, is_negated: bool) -> Evaluator:
    inner = compile_node(operand)
    return lambda values, document: (inner(values, document) is None) != is_negated


def _compile_junction(items: list[Evaluator], *, decisive: bool) -> Evaluator:
    """AND, which a false item decides, or OR, which a true one decides."""

    def evaluate(values: Values, document: Document | None) -> bool | None:
        result: bool | None = not decisive
        for item in items:
            truth = item(values, document)
            if truth is decisive:
                return decisive
            if truth is None:
                result = None
        return result

    return evaluate


def _compile_not(item: Expr) -> Evaluator:
    inner = compile_node(item)

    def evaluate(values: Values, document: Document | None) -> bool | None:
        truth = inner(values, document)
        return None if truth is None else not truth

    return evaluate


def _compile_path_test(node: PathTest) -> Evaluator:
    path, op, constant = node.path, node.op, node.value
    if op is None or constant is None:
        return lambda _values, document: None if document is None else path in document.paths
    test = COMPARE[op]
    is_text = isinstance(constant, str)

    def evaluate(_values: Values, document: Document | None) -> bool | None:
        if document is None:
            return None
        found = document.paths.get(path, ()) if is_text else document.numbers(path)
        return any(test(each, constant) for each in found)

    return evaluate


def _compile_xpath(node: XPath) -> Evaluator:
    engine = compile_xpath(node)
    return lambda _values, document: None if document is None else engine.evaluate(document)
