"""All events that a query finds as a file: over HTTP one body, over MQTT part by part.

The data pipeline makes the parts, as it makes pages: the node keeps nothing between two, and checks
rights again for each. The bodies of all parts together are the file. Parquet ends with a footer
about the whole, so it is written here, over HTTP only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.queries.messages import (
    MAX_TOKEN,
    EngineName,
    EventQuery,
    ExportFormat,
    encode_token,
)
from accord.operations.operation import Asker, Request, RequestError, operation
from accord.operations.ports import NodePorts
from accord.operations.query import (
    MAX_BODY,
    AsOf,
    Find,
    Moment,
    Text,
    is_single_event,
    parse_query,
    permitted,
    pipeline_of,
    query_importance,
    read_token,
)

if TYPE_CHECKING:
    from accord.core.queries.messages import PageToken

PART_BYTES: Final = 4 << 20
FileFormat = Literal["arrow", "csv", "json", "parquet"]
MEDIA: Final[dict[FileFormat, str]] = {
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
    "json": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}


class EventFile(Struct, frozen=True, kw_only=True):
    """A part of a file with `events` events; with a `cursor` there is another, which it asks for.

    The bodies (base64) of all parts, one after the other, are the file.
    """

    events: int
    cursor: str | None
    body: bytes


class ExportEvents(Request[EventFile], frozen=True, kw_only=True, tag="export"):
    """Selects events as a query does; or by the cursor of a part."""

    channel: Annotated[
        Text | None, Meta(description="A filter of channels.", examples=["demo/feeder/+"])
    ] = None
    where: Annotated[Text | None, Meta(description="A predicate.", examples=["load_mw > 4"])] = None
    xpath: Text | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Annotated[int | None, Meta(description="Events at most.")] = None
    order: Literal["newest", "oldest"] = "newest"
    event: Annotated[Text | None, Meta(description="The ID of one event.")] = None
    engine: Annotated[
        EngineName | None, Meta(description="What reads the archive; chosen if not given.")
    ] = None
    as_of: AsOf | None = None
    format: Annotated[
        FileFormat,
        Meta(
            description="Arrow's stream format; CSV; a line of JSON for each event; "
            "Parquet, over HTTP only."
        ),
    ] = "json"
    cursor: Annotated[
        str, Meta(max_length=MAX_TOKEN, description="Of the part before; others are ignored.")
    ] = ""


class FileParts:
    """Makes the body of a response of parts."""

    def __init__(self, ask: ExportEvents) -> None:
        self.media_type = MEDIA[ask.format]
        self._writer = ParquetParts() if ask.format == "parquet" else None

    def next(self, ask: ExportEvents, part: EventFile) -> ExportEvents | None:
        """The request for the part after this one; None after the last."""
        return None if part.cursor is None else replace(ask, cursor=part.cursor)

    async def put(self, part: EventFile, *, is_last: bool) -> bytes:
        if self._writer is None:
            return part.body
        return await asyncio.to_thread(self._writer.put, part.body, is_last=is_last)


@operation(
    "export",
    "GET /query/export",
    long=True,
    max_bytes=MAX_BODY,
    media=dict.fromkeys(MEDIA.values(), lambda part: part.body),
    json=False,
    parts=FileParts,
)
async def export_events(node: NodePorts, ask: ExportEvents, asker: Asker) -> EventFile:
    """Kept events as a file, as `accord query --output` writes it: Arrow, CSV, JSON or Parquet."""
    if ask.format == "parquet" and asker.client:
        raise RequestError(400, "expected arrow, csv or json: Parquet is for HTTP", "format")
    query, cursor, columns = await _question(node, ask)
    query = permitted(query, asker.rights, asker.user or "an anonymous client")
    if is_single_event(query):
        query = await _with_channel(node, query, asker)
    format_: ExportFormat = "arrow" if ask.format == "parquet" else ask.format
    found = await pipeline_of(node).export(
        query,
        format_=format_,
        cursor=cursor,
        columns=columns,
        bytes_=PART_BYTES,
        importance=query_importance(node, asker, query.channel),
    )
    return EventFile(
        events=found.events,
        cursor=encode_token(query, found.cursor, found.columns) or None,
        body=found.body,
    )


async def _question(node: NodePorts, ask: ExportEvents) -> tuple[EventQuery, str, dict[str, str]]:
    if ask.cursor:
        token: PageToken = await asyncio.to_thread(read_token, ask.cursor)
        return token.query, token.cursor, token.columns
    find = Find(
        channel=ask.channel,
        where=ask.where,
        xpath=ask.xpath,
        since=ask.since,
        until=ask.until,
        limit=ask.limit,
        order=ask.order,
        event=ask.event,
        engine=ask.engine,
        as_of=ask.as_of,
    )
    return await asyncio.to_thread(parse_query, find, now_ms=node.now_ms()), "", {}


async def _with_channel(node: NodePorts, query: EventQuery, asker: Asker) -> EventQuery:
    """Of the event's own channel, which the asker must be allowed to see."""
    page = await pipeline_of(node).page(
        query,
        cursor="",
        rows=1,
        bytes_=1,
        within_ms=10_000,
        importance=query_importance(node, asker, query.channel),
    )
    for each in page.events:
        if asker.rights.may_subscribe(each.channel):
            return replace(query, channel=each.channel)
    raise RequestError(404, "there is no such event", "event")


class ParquetParts:
    """Turns parts of Arrow's stream into those of a Parquet file, a row group for each."""

    def __init__(self) -> None:
        self._schema = b""
        self._sink = _Sink()
        self._writer: Any = None

    def put(self, body: bytes, *, is_last: bool) -> bytes:
        import pyarrow as pa  # noqa: PLC0415 (large)
        import pyarrow.parquet as pq  # noqa: PLC0415

        with pa.ipc.open_stream(self._schema + body) as stream:
            rows = stream.read_all()
        if self._writer is None:
            self._schema = rows.schema.serialize().to_pybytes()
            self._writer = pq.ParquetWriter(self._sink, rows.schema, compression="zstd")
        if len(rows):
            self._writer.write_table(rows)
        if is_last:
            self._writer.close()
        return self._sink.take()


class _Sink:
    """A file to write that keeps what has not been taken."""

    closed = False

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        found = bytes(self._data)
        self._data.clear()
        return found
