"""Data skipping: the files of a table that a query has to read, by their statistics in the log.

A file is skipped only if nothing in it can match. Of a predicate, comparisons of an attribute with
a constant are used, against the lowest and highest value in the attribute's columns, where these
tell the whole: a file that has the attribute in the map too is read. Any other condition might be
true in any file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Final

from accord.core.model.values import Kind, Value, kind_of
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
from accord.pipeline.tables import AttributeColumn, Columns, Stat, TableFile, by_attribute

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Final[dict[str, Kind]] = {
    "integer": Kind.NUMBER,
    "float": Kind.NUMBER,
    "string": Kind.STRING,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIMESTAMP,
}


def select(  # noqa: PLR0913
    files: Iterable[TableFile],
    *,
    channel: str = "#",
    since_ms: int | None = None,
    until_ms: int | None = None,
    from_offset: int = 0,
    before_offset: int | None = None,
    number: int | None = None,
    node: str | None = None,
    predicate: Predicate | None = None,
    columns: Columns = (),
) -> list[TableFile]:
    """Return the files that may hold matches; see `messages.EventQuery`.

    `columns` are those of attributes in the table.
    """
    low, high = channel_range(channel)
    skipping = _Skipping(columns)

    def may_have(file: TableFile) -> bool:
        return (
            (not node or not file.node or file.node == node)
            and (since_ms is None or file.last_ms >= since_ms)
            and (until_ms is None or file.first_ms < until_ms)
            and file.last_offset >= from_offset
            and (before_offset is None or file.first_offset < before_offset)
            and (not number or file.first_number <= number <= file.last_number)
            and (file.channels is None or _overlap(file.channels, low, high))
            and (predicate is None or skipping.may_be_true(predicate.tree, file))
        )

    return [file for file in files if may_have(file)]


def complete_columns(files: Iterable[TableFile], columns: Columns) -> frozenset[str]:
    """The attributes all of whose values are in their columns in these files, none in the map."""
    chosen = list(files)
    return frozenset(
        name
        for name, own in by_attribute(columns).items()
        if all(each.name in file.stats for file in chosen for each in own)
    )


def channel_range(pattern: str) -> tuple[str, str | None]:
    """The names from the first up to the second hold all channels that the filter selects.

    The second is None where there is no end.
    """
    levels = pattern.split("/")
    fixed = list(takewhile(lambda level: level not in ("+", "#"), levels))
    prefix = "/".join(fixed)
    if len(fixed) == len(levels):
        return prefix, prefix + "\0"
    if not fixed:
        return "", None
    # `a/#` selects `a` too. Between it and `a/` are names such as `a!`, which are selected by row.
    return prefix, prefix + chr(ord("/") + 1)


def _overlap(channels: tuple[str, str], low: str, high: str | None) -> bool:
    return channels[1] >= low and (high is None or channels[0] < high)


class _Skipping:
    """Whether a condition may be true of an event in a file, by what the file's columns have."""

    def __init__(self, columns: Columns) -> None:
        self._columns = by_attribute(columns)

    def may_be_true(self, node: Expr, file: TableFile) -> bool:
        match node:
            case And(items):
                return all(self.may_be_true(item, file) for item in items)
            case Or(items):
                return any(self.may_be_true(item, file) for item in items)
            case Literal(value):
                return value is True
            case Compare(op, Attribute(name), Literal(value)) if value is not None:
                return self._may_compare(op, name, value, file)
            case Compare(op, Literal(value), Attribute(name)) if value is not None:
                return self._may_compare(MIRRORED[op], name, value, file)
            case In(Attribute(name), values) if not node.is_negated:
                return any(self._may_compare("=", name, value, file) for value in values)
            case Like(Attribute(name), pattern) if not node.is_negated:
                return self._may_start(name, split_prefix(pattern)[0], file)
            case IsNull(Attribute(name)) if node.is_negated:
                return self._may(name, file, lambda _column, _low, _high: True)
        return True

    def _may_compare(self, op: CompareOp, name: str, value: Value, file: TableFile) -> bool:
        kind, number = kind_of(value), _comparable(value)
        return self._may(
            name,
            file,
            lambda column, low, high: (
                kind is _KINDS[column.kind] and _overlaps(op, low, high, number)
            ),
        )

    def _may_start(self, name: str, prefix: str, file: TableFile) -> bool:
        return self._may(
            name,
            file,
            lambda column, low, high: (
                column.kind == "string" and low[: len(prefix)] <= prefix <= high[: len(prefix)]
            ),
        )

    def _may(
        self, name: str, file: TableFile, test: Callable[[AttributeColumn, Any, Any], bool]
    ) -> bool:
        """Whether the test passes for the bounds of one of the attribute's columns."""
        columns = self._columns.get(name, ())
        if not columns or any(column.name not in file.stats for column in columns):
            return True  # the map may have values
        for column in columns:
            bounds = file.stats[column.name]
            if bounds is None or (bounds != (None, None) and test(column, *bounds)):
                return True
        return False


def _overlaps(op: CompareOp, low: Any, high: Any, value: Any) -> bool:
    match op:
        case "=":
            return bool(low <= value <= high)
        case "<>":
            return bool(low != value or high != value)
        case "<":
            return bool(low < value)
        case "<=":
            return bool(low <= value)
        case ">":
            return bool(high > value)
    return bool(high >= value)


def _comparable(value: Value) -> Stat:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value
