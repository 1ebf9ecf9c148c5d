"""Operands in Spark whose type is known per row only: comparison, membership and arithmetic.

An operand is a set of columns, one for each type it may have, of which at most one is not null. A
comparison is made between all comparable pairs of columns, and yields the one result that is not
null. Types that a declared column or a constant can't have are omitted, so that simple conditions
such as `altitude > 300` stay simple, and Parquet can prune by them.

Numbers need care. Spark compares a bigint with a double in doubles, rounded: here a constant
becomes the nearest threshold of the column's own type, and two columns that are equal when rounded
compare as integers. Spark's NaN equals itself and is above all: here it only stands for "not
finite" between the steps of a calculation, and ends as null.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, Kind, Value, kind_of
from accord.core.predicates.evaluate import COMPARE
from accord.core.predicates.evaluate import compare as compare_values
from accord.core.predicates.tree import MIRRORED, ArithmeticOp, CompareOp

_KIND_OF_FIELD: Final[dict[str, Kind]] = {
    "integer": Kind.NUMBER,
    "float": Kind.NUMBER,
    "string": Kind.STRING,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIMESTAMP,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Operand:
    """`columns` by the names of `tables.ARROW`; `constant` if the value is known."""

    columns: Mapping[str, Column]
    constant: Value | None = None


def constant(value: Value | None) -> Operand:
    match value:
        case None:
            return Operand({})
        case bool():
            return Operand({"boolean": _literal(value)}, value)
        case int():
            return Operand({"integer": _literal(value)}, value)
        case float():
            return Operand({"float": _literal(value)}, value)
        case str():
            return Operand({"string": _literal(value)}, value)
    return Operand({"timestamp": _literal(value)}, value)


def truth(value: bool | None) -> Column:
    return F.lit(value).cast("boolean")


def test(op: CompareOp, left: Column, right: Column | float) -> Column:
    """Spark's own comparison, of columns of one type."""
    return cast(Column, COMPARE[op](left, right))


def compare(op: CompareOp, left: Operand, right: Operand) -> Column:
    if left.constant is not None:
        op, left, right = MIRRORED[op], right, left
    if left.constant is not None:
        return truth(compare_values(op, left.constant, right.constant))
    if isinstance(right.constant, int | float) and not isinstance(right.constant, bool):
        return _first_known(_against_number(op, left, right.constant))
    return _first_known(_against_columns(op, left.columns, right.columns))


def is_in(operand: Operand, values: Sequence[Value], *, is_negated: bool) -> Column:
    """Membership in `values`; unknown without a match if kinds differ, as some can't compare."""
    is_mixed = len(set(map(kind_of, values))) > 1
    tests = []
    for field, column in operand.columns.items():
        listed = [value for value in values if kind_of(value) is _KIND_OF_FIELD[field]]
        if not listed:
            continue
        found = _is_among(column, field, listed)
        if is_mixed:
            tests.append(F.when(found, F.lit(not is_negated)))
        else:
            tests.append(~found if is_negated else found)
    return _first_known(tests)


def is_unknown(operand: Operand) -> Column:
    return all_of([column.isNull() for column in operand.columns.values()])


def all_of(conditions: Sequence[Column]) -> Column:
    return _fold(operator.and_, conditions) if conditions else truth(True)


def any_of(conditions: Sequence[Column]) -> Column:
    return _fold(operator.or_, conditions) if conditions else truth(False)


def to_double(operand: Operand) -> Column:
    """The operand as a number for arithmetic; null if it is none."""
    numbers = [operand.columns[name] for name in ("float", "integer") if name in operand.columns]
    return F.coalesce(*(number.cast("double") for number in numbers), F.lit(None).cast("double"))


def calculate(op: ArithmeticOp, left: Column, right: Column) -> Column:
    """Arithmetic; NaN if the result is not finite, which propagates."""
    match op:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case "/":
            result = F.try_divide(left, right)
    # The remainder by infinity is the number itself, but NaN for infinity: unlike a conditional
    # expression this refers to the result once; otherwise nested arithmetic would grow
    # exponentially.
    return result % F.lit(math.inf)


def finite(number: Column) -> Operand:
    return Operand({"float": F.when(~F.isnan(number), number)})


def _literal(value: Value) -> Column:
    if isinstance(value, datetime):
        # Java's timestamps would apply old calendars and the session's time zone.
        return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
    return F.lit(value)


def _fold(combine: Callable[[Column, Column], Column], items: Sequence[Column]) -> Column:
    """Fold as a balanced tree, because Spark's stack overflows on a chain of thousands."""
    if len(items) == 1:
        return items[0]
    middle = len(items) // 2
    return combine(_fold(combine, items[:middle]), _fold(combine, items[middle:]))


def _first_known(tests: Iterable[Column]) -> Column:
    first, *others = [*tests] or [truth(None)]
    return F.coalesce(first, *others) if others else first


def _where_known(column: Column, value: bool) -> Column:
    return F.when(column.isNotNull(), F.lit(value))


def _against_columns(
    op: CompareOp, left: Mapping[str, Column], right: Mapping[str, Column]
) -> Iterable[Column]:
    for field in left:
        if field in right and (field != "boolean" or op in ("=", "<>")):
            yield test(op, left[field], right[field])
    if "integer" in left and "float" in right:
        yield _compare_exactly(op, left["integer"], right["float"])
    if "float" in left and "integer" in right:
        yield _compare_exactly(MIRRORED[op], right["integer"], left["float"])


def _compare_exactly(op: CompareOp, integer: Column, number: Column) -> Column:
    """Compare rounded values, and integers where these are equal: rounding preserves order."""
    rounded = integer.cast("double")
    return (
        F.when(rounded != number, test(op, rounded, number))
        .when(rounded < 2.0**63, test(op, integer, number.try_cast("bigint")))
        # The largest integers round to 2**63, which is out of their range.
        .when(rounded == number, F.lit(COMPARE[op](0, 1)))
    )


def _against_number(op: CompareOp, left: Operand, number: int | float) -> Iterable[Column]:
    if "integer" in left.columns:
        yield _integer_against(op, left.columns["integer"], number)
    if "float" in left.columns:
        yield _float_against(op, left.columns["float"], number)


def _integer_against(op: CompareOp, column: Column, number: int | float) -> Column:
    if op in ("=", "<>") and number != math.floor(number):
        return _where_known(column, op == "<>")
    threshold = math.ceil(number) if op in ("<", ">=") else math.floor(number)
    if INTEGER_MIN <= threshold <= INTEGER_MAX:
        return test(op, column, threshold)
    return _where_known(column, COMPARE[op](0, threshold))


def _float_against(op: CompareOp, column: Column, number: int | float) -> Column:
    nearest = float(number)
    if nearest == number:
        return test(op, column, nearest)
    if op in ("=", "<>"):
        return _where_known(column, op == "<>")
    above = nearest if nearest > number else math.nextafter(nearest, math.inf)
    return column < above if op in ("<", "<=") else column >= above


def _is_among(column: Column, field: str, listed: Sequence[Any]) -> Column:
    """Membership among those `listed` values that a column of this type can equal."""
    members: list[Any]
    if field == "integer":
        members = [int(n) for n in listed if n == int(n) and INTEGER_MIN <= n <= INTEGER_MAX]
    elif field == "float":
        members = [float(n) for n in listed if n == float(n)]
        # Spark looks up a long list by bit pattern, which differs between the two zeros.
        members += [-0.0] * (0.0 in members)
    else:
        members = [_literal(value) for value in listed]
    return column.isin(members) if members else _where_known(column, False)
