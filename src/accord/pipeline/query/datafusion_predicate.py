"""Conditions for DataFusion that every match satisfies, and usually few other rows.

They only spare work: `core.predicates` decides each row that they let through. So what has no exact
counterpart in SQL is left out, and nothing depends on how DataFusion compares, converts or rounds:
constants are of the type of the column that they are compared with, widened to the next value of it
where it does not have them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final

from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, Kind, Value, kind_of
from accord.core.predicates.evaluate import COMPARE
from accord.core.predicates.like import split_prefix
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import (
    MIRRORED,
    And,
    Attribute,
    Compare,
    CompareOp,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Or,
)
from accord.pipeline.data_skipping import channel_range
from accord.pipeline.query.checks import CheckedQuery
from accord.pipeline.tables import ARROW, ATTRIBUTES, Columns, by_attribute

MAX_ITEMS: Final = 64  # of AND, OR and IN; DataFusion plans longer ones for longer than it runs
MAX_DEPTH: Final = 8
MAX_TEXT: Final = 1_000  # characters of a constant
_NEVER: Final = "false"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Final[dict[str, Kind]] = {
    "integer": Kind.NUMBER,
    "float": Kind.NUMBER,
    "string": Kind.STRING,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIMESTAMP,
}


def superset(predicate: Predicate, columns: Columns, complete: Collection[str]) -> str:
    """A condition that is true of every row of which `predicate` is; empty if there is none.

    `columns` are those of attributes in the table, with all values of the `complete` attributes.
    """
    return _Superset(columns, complete).condition(predicate.tree, MAX_DEPTH) or ""


def is_tight(predicate: Predicate) -> bool:
    """Whether the condition lets few rows through that do not match."""
    return _is_tight(predicate.tree, MAX_DEPTH)


def channels(question: CheckedQuery) -> str:
    """A condition on `channel` that is true wherever the query selects it; empty if anywhere."""
    pattern = question.query.channel
    if question.is_exact:
        return f"channel = {quoted(pattern)}"
    low, high = channel_range(pattern)
    found = [f"channel >= {quoted(low)}"] if low else []
    if high is not None:
        found.append(f"channel < {quoted(high)}")
    after = "/".join(reversed([*takewhile(_is_fixed, reversed(pattern.split("/")))]))
    if after:
        found.append(f"ends_with(channel, {quoted('/' + after)})")
    return " AND ".join(found)


def _is_fixed(level: str) -> bool:
    return level not in ("+", "#")


def named(column: str) -> str:
    return '"{}"'.format(column.replace('"', '""'))


def quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def moment(micros: int) -> str:
    return f"to_timestamp_micros({micros})"


class _Superset:
    def __init__(self, columns: Columns, complete: Collection[str]) -> None:
        self._columns = by_attribute(columns)
        self._complete = complete

    def condition(self, node: Expr, depth: int) -> str | None:
        """The condition, or None if it would not spare anything."""
        if not depth:
            return None
        match node:
            case And(items):
                known = (self.condition(item, depth - 1) for item in items[:MAX_ITEMS])
                return _all_of([each for each in known if each is not None])
            case Or(items) if len(items) <= MAX_ITEMS:
                either = [self.condition(item, depth - 1) for item in items]
                return None if None in either else _any_of([each or "" for each in either])
            case Literal(value):
                return None if value is True else _NEVER
            case Attribute(name):
                return self._compare("=", name, True)
            case Compare(op, Attribute(name), Literal(value)) if value is not None:
                return self._compare(op, name, value)
            case Compare(op, Literal(value), Attribute(name)) if value is not None:
                return self._compare(MIRRORED[op], name, value)
            case In(Attribute(name), values) if not node.is_negated and len(values) <= MAX_ITEMS:
                return _any_of([self._compare("=", name, each) for each in values])
            case Like(Attribute(name), pattern) if not node.is_negated:
                return self._starts(name, split_prefix(pattern)[0][:MAX_TEXT])
            case IsNull(Attribute(name)) if node.is_negated:
                return _any_of([_is_known(field) for field, _ in self._fields(name)])
        return None

    def _compare(self, op: CompareOp, name: str, value: Value) -> str:
        kind = kind_of(value)
        return _any_of(
            [
                _against(op, field, of_field, value)
                for field, of_field in self._fields(name)
                if _KINDS[of_field] is kind
            ]
        )

    def _starts(self, name: str, prefix: str) -> str:
        fields = [field for field, kind in self._fields(name) if kind == "string"]
        if not prefix:
            return _any_of([_is_known(field) for field in fields])
        return _any_of([f"starts_with({field}, {quoted(prefix)})" for field in fields])

    def _fields(self, name: str) -> Iterator[tuple[str, str]]:
        """Where a value of the attribute may be, and of which type it is there."""
        for column in self._columns.get(name, ()):
            yield named(column.name), column.kind
        if name not in self._complete:
            for kind in ARROW:
                yield f"{ATTRIBUTES}[{quoted(name)}]['{kind}']", kind


def _all_of(conditions: Sequence[str]) -> str | None:
    return " AND ".join(conditions) or None


def _any_of(conditions: Sequence[str]) -> str:
    possible = [each for each in conditions if each != _NEVER]
    return f"({' OR '.join(f'({each})' for each in possible)})" if possible else _NEVER


def _is_known(field: str) -> str:
    return f"{field} IS NOT NULL"


def _against(op: CompareOp, field: str, kind: str, value: Value) -> str:
    match value:
        case bool():
            return f"{field} {op} {value}" if op in ("=", "<>") else _NEVER
        case int() | float() if kind == "integer":
            return _against_integer(op, field, value)
        case int() | float():
            return _against_float(op, field, value)
        case str():
            return f"{field} {op} {quoted(value)}" if len(value) <= MAX_TEXT else _is_known(field)
    return f"{field} {op} {moment((value - _EPOCH) // timedelta(microseconds=1))}"


def _against_integer(op: CompareOp, field: str, number: int | float) -> str:
    if op in ("=", "<>") and number != math.floor(number):
        return _NEVER if op == "=" else _is_known(field)
    threshold = math.ceil(number) if op in ("<", ">=") else math.floor(number)
    if INTEGER_MIN <= threshold <= INTEGER_MAX:
        return f"{field} {op} {threshold}"
    return _is_known(field) if COMPARE[op](0, threshold) else _NEVER


def _against_float(op: CompareOp, field: str, number: int | float) -> str:
    nearest = float(number)
    if nearest == number:
        return f"{field} {op} {nearest!r}"
    if op in ("=", "<>"):
        return _NEVER if op == "=" else _is_known(field)
    return f"{field} {op[0]}= {nearest!r}"  # also where it rounds to


def _is_tight(node: Expr, depth: int) -> bool:
    match node:
        case _ if not depth:
            return False
        case And(items):
            return any(_is_tight(item, depth - 1) for item in items[:MAX_ITEMS])
        case Or(items):
            return len(items) <= MAX_ITEMS and all(_is_tight(item, depth - 1) for item in items)
        case Compare(op, Attribute(), Literal()) | Compare(op, Literal(), Attribute()):
            return op != "<>"
        case In(Attribute(), values):
            return not node.is_negated and len(values) <= MAX_ITEMS
        case Like(Attribute(), pattern):
            return not node.is_negated and bool(split_prefix(pattern)[0])
        case Attribute() | Literal():
            return True
    return False
