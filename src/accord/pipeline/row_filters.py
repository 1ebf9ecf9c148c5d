"""Row filters of the source: from its options, and pushed down by Spark.

Rows that are ruled out are not fully decoded. Spark still evaluates its conditions itself, so one
may be ignored here, but a row it would keep is never dropped. Offsets narrow the range that is
read; the rest is checked per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from accord.core.model.channels import filter_selects
from accord.journal.events import KeptEvent
from accord.journal.record import MAX_OFFSET
from accord.pipeline.source_options import ReadOptions

Test = Callable[[KeptEvent], bool]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
}
_FIELDS: Final[dict[str, tuple[type, Callable[[KeptEvent], Any]]]] = {
    "number": (int, lambda event: event.number),
    "channel": (str, lambda event: event.channel),
    "publisher": (str, lambda event: event.publisher),
    "received": (datetime, lambda event: event.received_ms * 1000),
    "qos": (int, lambda event: event.qos),
    "payload_bytes": (int, lambda event: len(event.payload)),
}


class RowFilters:
    """The range to read and the rows to keep; picklable, as tasks receive it."""

    def __init__(self) -> None:
        self.first = 0
        self.end = MAX_OFFSET
        self.nodes: frozenset[str] | None = None
        self._kept: list[Filter] = []

    def add(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            name = ".".join(getattr(each, "attribute", ()))
            if name == "offset":
                self._narrow(each)
            elif name == "node":
                self._narrow_nodes(each)
            elif name in _FIELDS and _test(each) is not None:
                self._kept.append(each)

    def test(self, options: ReadOptions) -> Test | None:
        """The test for an event; None if all pass."""
        tests = [test for each in self._kept if (test := _test(each)) is not None]
        since_ms, until_ms, channel = options.since_ms, options.until_ms, options.channel
        if since_ms is not None:
            tests.append(lambda event: event.received_ms >= since_ms)
        if until_ms is not None:
            tests.append(lambda event: event.received_ms < until_ms)
        if channel is not None and channel != "#":
            is_selected = lru_cache(maxsize=10_000)(partial(filter_selects, channel))
            tests.append(lambda event: is_selected(event.channel))
        if len(tests) < 2:
            return tests[0] if tests else None
        return lambda event: all(test(event) for test in tests)

    def _narrow(self, each: Filter) -> None:
        value = getattr(each, "value", None)
        if isinstance(each, In):
            offsets = [offset for offset in each.value if isinstance(offset, int)]
            first, end = (min(offsets), max(offsets) + 1) if offsets else (0, 0)
        elif not isinstance(value, int):
            return
        elif isinstance(each, EqualTo | EqualNullSafe):
            first, end = value, value + 1
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            first, end = value + isinstance(each, GreaterThan), MAX_OFFSET
        elif isinstance(each, LessThan | LessThanOrEqual):
            first, end = 0, value + isinstance(each, LessThanOrEqual)
        else:
            return
        self.first, self.end = max(self.first, first), min(self.end, end)

    def _narrow_nodes(self, each: Filter) -> None:
        if isinstance(each, In):
            nodes = frozenset(node for node in each.value if isinstance(node, str))
        elif isinstance(each, EqualTo | EqualNullSafe) and isinstance(each.value, str):
            nodes = frozenset([each.value])
        else:
            return
        self.nodes = nodes if self.nodes is None else self.nodes & nodes


def _test(each: Filter) -> Test | None:
    kind, get = _FIELDS[each.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(each, In):
        members = frozenset(_plain(value, kind) for value in each.value) - {None}
        return lambda event: get(event) in members
    value = _plain(getattr(each, "value", None), kind)
    if value is None:
        return None
    if isinstance(each, StringStartsWith):
        return lambda event: get(event).startswith(value)
    compare = _COMPARE.get(type(each))
    return None if compare is None else lambda event: compare(get(event), value)


def _plain(value: Any, kind: type) -> Any:
    """The value in the field's type, or None if they do not compare."""
    if kind is datetime and isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is kind and kind is not datetime else None
