"""Publishes rows as events: `df.write` and `df.writeStream` with the format `accord`.

A row needs a `channel`; `payload` (binary or text), `key`, `deadline_ms`, `content_type` and
`metadata` are those of the event. `attributes` is a map of values; every other column is an
attribute of its own name, except those that only an archive has. Rows read with `accord` can be
written unchanged.

Delivery is at-least-once: if a task fails half-way, or a stream restarts from its checkpoint, some
events are published again. With QoS 1 (the default) or 2 a task is done when the node has
acknowledged all its events, with QoS 0 when they have been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import MapType, StringType, StructType

from accord.client.address import parse_address
from accord.client.errors import ExpiredError
from accord.core.model.errors import AccordError, EventError
from accord.core.model.values import Value
from accord.pipeline.source_options import OptionError

if TYPE_CHECKING:
    from accord.client.session import Session

_WINDOW: Final = 500  # unacknowledged events at most
_ITS_OWN: Final = frozenset({"channel", "payload", "key", "deadline_ms", "content_type"})
# Set by the node, not by the publisher.
_OF_AN_ARCHIVE: Final = frozenset(
    {"node", "offset", "number", "publisher", "received", "qos", "day", "group"}
    | {"payload_bytes", "payload_ref", "properties", "paths"}
)


class RowError(AccordError):
    """A row can't be published."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Target, QoS, and how long to wait for a node that is not up yet."""

    url: str
    qos: int = 1
    retain: bool = False
    wait_s: float = 30.0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Parse options; OptionError names the wrong one."""
        url = options.get("url") or options.get("path") or ""
        try:
            parse_address(url)
        except ValueError as error:
            raise OptionError("url", str(error)) from None
        known = {name: options[name] for name in ("qos", "retain", "wait_s") if name in options}
        try:
            made = msgspec.convert({"url": url, **known}, cls, strict=False)
        except msgspec.ValidationError as error:
            problem, _, place = str(error).rpartition(" - at `$.")
            raise OptionError(place.rstrip("`"), problem) from None
        if made.qos not in (0, 1, 2):
            raise OptionError("qos", f"expected 0, 1 or 2, got {made.qos}")
        return made


class Published(WriterCommitMessage):
    def __init__(self, events: int) -> None:
        self.events = events


class _Writer:
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        names = schema.fieldNames()
        if "channel" not in names or schema["channel"].dataType != StringType():
            raise RowError(f"expected a column channel of strings, got {', '.join(names)}")
        if "attributes" in names and not isinstance(schema["attributes"].dataType, MapType):
            found = schema["attributes"].dataType.simpleString()
            raise RowError(f"attributes: expected a map of values, got {found}")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return Published(asyncio.run(_publish_all(iterator, self._options)))


class EventWriter(_Writer, DataSourceArrowWriter):
    """Writes the rows of a batch DataFrame."""


class EventStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the rows of a stream, batch by batch."""


async def _publish_all(batches: Iterator[pa.RecordBatch], options: WriteOptions) -> int:
    from accord.client.session import connect  # noqa: PLC0415 (workers that only read go without)

    count = 0
    waiting: set[asyncio.Task[None]] = set()
    async with connect(options.url, wait_s=options.wait_s, keep_alive_s=600) as session:
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    if len(waiting) >= _WINDOW:
                        waiting = await _wait_acks(waiting, asyncio.FIRST_COMPLETED)
                    waiting.add(asyncio.create_task(_publish(session, row, options)))
                    count += 1
            await _wait_acks(waiting, asyncio.ALL_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
    return count


async def _wait_acks(tasks: set[asyncio.Task[None]], when: str) -> set[asyncio.Task[None]]:
    """Wait for some or all acknowledgements; raises the error of any."""
    if not tasks:
        return tasks
    done, waiting = await asyncio.wait(tasks, return_when=when)
    for task in done:
        task.result()
    return waiting


async def _publish(session: Session, row: dict[str, Any], options: WriteOptions) -> None:
    event = to_event(row)
    try:
        await session.publish(
            event.channel,
            event.payload,
            qos=options.qos,
            retain=options.retain,
            key=event.key,
            deadline_ms=event.deadline_ms,
            content_type=event.content_type,
            metadata=event.metadata,
            attributes=event.attributes,
        )
    except ExpiredError:
        pass  # as its deadline requires
    except EventError as error:
        raise RowError(f"row for channel {event.channel[:200]!r}: {error}") from error


class RowEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The event in a row."""

    channel: str
    payload: bytes | str
    key: str | None
    deadline_ms: int | None
    content_type: str | None
    metadata: bytes | str | None
    attributes: dict[str, Value]


def to_event(row: Mapping[str, Any]) -> RowEvent:
    """Convert a row; RowError if it has no channel, or a value no attribute can have."""
    channel = row["channel"]
    if not isinstance(channel, str):
        raise RowError("channel: expected a name, got null")
    if row.get("payload") is None and row.get("payload_ref") is not None:
        raise RowError(f"payload: is in a file of its own, {row['payload_ref']}: read it first")
    attributes: dict[str, Value] = {}
    for name, value in row.items():
        if name == "attributes":
            attributes.update({n: _value(v, n) for n, v in (value or ()) if _is_set(v)})
        elif name not in _ITS_OWN | _OF_AN_ARCHIVE | {"metadata"} and value is not None:
            attributes[name] = _value(value, name)
    return RowEvent(
        channel=channel,
        payload=row.get("payload") or b"",
        key=row.get("key"),
        deadline_ms=row.get("deadline_ms"),
        content_type=row.get("content_type"),
        metadata=row.get("metadata"),
        attributes=attributes,
    )


def _is_set(value: Any) -> bool:
    if isinstance(value, dict):
        return any(each is not None for each in value.values())
    return value is not None


def _value(value: Any, name: str) -> Value:
    if isinstance(value, dict):  # as in the archive: one of several types is set
        value = next((each for each in value.values() if each is not None), None)
    if isinstance(value, datetime | str | int | float):
        return value
    if isinstance(value, date):
        return value.isoformat()
    kind = type(value).__name__
    raise RowError(f"{name}: expected a string, number, boolean or timestamp, got {kind}")
