"""File pruning: the files of the archive that a query has to read, by their manifest statistics.

A file is skipped only if nothing in it can match. Of a predicate, comparisons of a declared
attribute with a constant are used, against the file's lowest and highest value of the attribute.
Any other condition might be true in any file.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from accord.core.model.channels import filter_selects
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
from accord.pipeline.manifest import Snapshot
from accord.pipeline.tables import EVENTS, OTHER, FileEntry, Stat, group_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Final[dict[str, Kind]] = {
    "integer": Kind.NUMBER,
    "float": Kind.NUMBER,
    "string": Kind.STRING,
    "boolean": Kind.BOOLEAN,
    "timestamp": Kind.TIMESTAMP,
}


def select(  # noqa: PLR0913
    snapshot: Snapshot,
    *,
    table: str = EVENTS,
    channel: str = "#",
    since_ms: int | None = None,
    until_ms: int | None = None,
    from_offset: int = 0,
    before_offset: int | None = None,
    number: int | None = None,
    node: str | None = None,
    predicate: Predicate | None = None,
) -> list[FileEntry]:
    """Return the files that may hold matches; see `messages.EventQuery`.

    Conditions on an attribute that a file declares are assumed to read its column only.
    """
    has_channel = _channel_test(channel)

    def may_have(file: FileEntry) -> bool:
        return (
            file.table == table
            and (node is None or file.node == node)
            and (since_ms is None or file.last_ms >= since_ms)
            and (until_ms is None or file.first_ms < until_ms)
            and file.last_offset >= from_offset
            and (before_offset is None or file.first_offset < before_offset)
            and (not number or file.first_number <= number <= file.last_number)
            and has_channel(file)
            and (predicate is None or may_be_true(predicate.tree, file))
        )

    return [file for file in snapshot.files if may_have(file)]


def _channel_test(pattern: str) -> Callable[[FileEntry], bool]:
    first = pattern.partition("/")[0]
    group = None if first in ("+", "#") else group_of(first)
    known: dict[str, bool] = {}

    def selects(channel: str) -> bool:
        found = known.get(channel)
        if found is None:
            # An empty name stands for several channels in one ledger entry.
            found = known[channel] = not channel or filter_selects(pattern, channel)
        return found

    def may_have(file: FileEntry) -> bool:
        if file.channels is not None:
            return any(map(selects, file.channels))
        return file.table != EVENTS or group is None or file.group in (group, OTHER)

    return may_have


def may_be_true(node: Expr, file: FileEntry) -> bool:
    """Whether `node` may be true of an event in `file`."""
    match node:
        case And(items):
            return all(may_be_true(item, file) for item in items)
        case Or(items):
            return any(may_be_true(item, file) for item in items)
        case Literal(value):
            return value is True
        case Compare(op, Attribute(name), Literal(value)) if value is not None:
            return _may_compare(op, name, value, file)
        case Compare(op, Literal(value), Attribute(name)) if value is not None:
            return _may_compare(MIRRORED[op], name, value, file)
        case In(Attribute(name), values) if not node.is_negated:
            return any(_may_compare("=", name, value, file) for value in values)
        case Like(Attribute(name), pattern) if not node.is_negated:
            return _may_start(name, split_prefix(pattern)[0], file)
        case IsNull(Attribute(name)) if node.is_negated:
            return file.stats.get(name) != (None, None)
    return True


def _may_compare(op: CompareOp, name: str, value: Value, file: FileEntry) -> bool:
    if name not in file.stats:
        return True
    kind = kind_of(value)
    if kind is not _KINDS[file.declared[name]]:
        return False  # unknown for any value in the column
    low, high = file.stats[name]
    if low is None or high is None:
        return False
    return _overlaps(op, low, high, _comparable(value))


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


def _may_start(name: str, prefix: str, file: FileEntry) -> bool:
    if name not in file.stats:
        return True
    low, high = file.stats[name]
    if not isinstance(low, str) or not isinstance(high, str):
        return False
    return low[: len(prefix)] <= prefix <= high[: len(prefix)] if prefix else True


def _comparable(value: Value) -> Stat:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value
