"""Received events as an Arrow table.

An attribute becomes a column if all its values have one type (integers and floats combine to
floats). The others stay in the column `attributes`, a map of names to texts. So do attributes whose
names equal another column's, ignoring case, and those beyond `MAX_COLUMNS`.
"""

# pyarrow is loaded only where it is used: it is large, and may not be installed.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from accord.client.messages import ReceivedEvent
from accord.core.model.values import EXACT_MAX, Value
from accord.core.mqtt.event_mapping import attributes_to_user

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COLUMNS: Final = 500
COLUMNS: Final = (
    "id", "channel", "publisher", "received", "qos", "key", "deadline_ms", "content_type",
    "metadata", "payload", "attributes",
)  # fmt: skip

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = frozenset({int, float})


def to_table(events: Sequence[ReceivedEvent]) -> pa.Table:
    import pyarrow as pa

    chosen = _choose_columns(events)
    types = {
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bool: pa.bool_(),
        datetime: pa.timestamp("us", "UTC"),
    }
    fields: list[tuple[str, pa.DataType, list[Any]]] = [
        ("id", pa.string(), [each.id for each in events]),
        ("channel", pa.string(), [each.channel for each in events]),
        ("publisher", pa.string(), [each.source for each in events]),
        ("received", types[datetime], [_moment(each.received_ms) for each in events]),
        ("qos", pa.int32(), [each.qos for each in events]),
        ("key", pa.string(), [each.key for each in events]),
        ("deadline_ms", pa.int64(), [each.deadline_ms for each in events]),
        ("content_type", pa.string(), [each.properties.content_type for each in events]),
        ("metadata", pa.binary(), [each.metadata and each.metadata.source for each in events]),
        ("payload", pa.binary(), [each.payload for each in events]),
        ("attributes", pa.map_(pa.string(), pa.string()), [_rest(e, chosen) for e in events]),
    ]
    for name, kind in chosen.items():
        values = [_as(kind, each.attributes.get(name)) for each in events]
        fields.append((name, types[kind], values))
    schema = pa.schema([(name, kind) for name, kind, _ in fields])
    return pa.table([pa.array(values, kind) for _, kind, values in fields], schema=schema)


def _choose_columns(events: Sequence[ReceivedEvent]) -> dict[str, type]:
    kinds: dict[str, set[type]] = {}
    exact: set[str] = set()  # integers that floats can't represent
    for event in events:
        for name, value in event.attributes.items():
            kinds.setdefault(name, set()).add(type(value))
            if type(value) is int and abs(value) > EXACT_MAX:
                exact.add(name)
    times = Counter(name.lower() for name in (*COLUMNS, *kinds))
    chosen: dict[str, type] = {}
    for name, found in kinds.items():
        is_mixed = len(found) > 1 and (found != _NUMBERS or name in exact)
        if not is_mixed and times[name.lower()] == 1 and len(chosen) < MAX_COLUMNS:
            chosen[name] = float if len(found) > 1 else next(iter(found))
    return chosen


def _rest(event: ReceivedEvent, chosen: dict[str, type]) -> list[tuple[str, str]]:
    rest = {name: value for name, value in event.attributes.items() if name not in chosen}
    return list(attributes_to_user(rest))


def _as(kind: type, value: Value | None) -> Value | None:
    return float(value) if kind is float and isinstance(value, int) else value


def _moment(moment_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=moment_ms)
