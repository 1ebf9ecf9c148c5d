"""The meaning of raw trees, written as plainly as it can be: what canonical forms must preserve."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from lxml import etree

from accord.core.model.document import Document
from accord.core.model.values import Value, kind_of, xpath_number
from accord.core.predicates import tree as t

COMPARE: dict[str, Any] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
CALCULATE: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else math.nan,
}


def truth(node: t.Expr, values: Mapping[str, Value], document: Document | None) -> bool | None:
    """`node` as a condition: what is no truth value is unknown."""
    result = meaning(node, values, document)
    return result if isinstance(result, bool) else None


def meaning(node: t.Expr, values: Mapping[str, Value], document: Document | None) -> Value | None:
    def of(part: t.Expr) -> Value | None:
        return meaning(part, values, document)

    def is_true(part: t.Expr) -> bool | None:
        return truth(part, values, document)

    match node:
        case t.Literal(value):
            return value
        case t.Attribute(name):
            return values.get(name)
        case t.Negative(operand):
            return calculate("-", 0, of(operand))
        case t.Arithmetic(op, left, right):
            return calculate(op, of(left), of(right))
        case t.Compare(op, left, right):
            return compare(op, of(left), of(right))
        case t.In(operand, listed, is_negated):
            return negate(any_of([compare("=", of(operand), v) for v in listed]), is_negated)
        case t.Like(operand, pattern, is_negated):
            text = of(operand)
            return negate(is_like(text, pattern), is_negated) if isinstance(text, str) else None
        case t.IsNull(operand, is_negated):
            return (of(operand) is None) is not is_negated
        case t.And(items):
            return negate(any_of([negate(is_true(item), True) for item in items]), True)
        case t.Or(items):
            return any_of([is_true(item) for item in items])
        case t.Not(item):
            return negate(is_true(item), True)
        case t.PathTest():
            return None if document is None else is_found(node, document)
        case t.XPath(expression):
            return (
                None
                if document is None
                else bool(etree.XPath(f"boolean({expression})")(document.root))
            )
    raise AssertionError(node)


def compare(op: str, left: Value | None, right: Value | None) -> bool | None:
    if left is None or right is None or kind_of(left) is not kind_of(right):
        return None
    if isinstance(left, bool) and op not in ("=", "<>"):
        return None
    return bool(COMPARE[op](left, right))


def calculate(op: str, left: Value | None, right: Value | None) -> float | None:
    if type(left) not in (int, float) or type(right) not in (int, float):
        return None
    result = float(CALCULATE[op](float(left), float(right)))  # type: ignore[arg-type]
    return result if math.isfinite(result) else None


def any_of(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def negate(truth: bool | None, is_negated: bool) -> bool | None:
    return None if truth is None else truth is not is_negated


def is_like(text: str, pattern: str) -> bool:
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join({"%": ".*", "_": "."}.get(piece) or re.escape(piece[-1]) for piece in pieces)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def is_found(test: t.PathTest, document: Document) -> bool:
    texts = document.paths.get(test.path, ())
    if test.op is None:
        return bool(texts)
    if isinstance(test.value, str):
        return any(COMPARE[test.op](text, test.value) for text in texts)
    return any(COMPARE[test.op](xpath_number(text), test.value) for text in texts)
