"""A node's journal over HTTP, for readers on other machines.

It holds what all clients published and the outcomes, so it takes the right to everything:
`subscribe` to `#`, and `system`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from accord.core.queries.journal_http import (
    JOURNAL,
    MSGPACK,
    RECORDS,
    JournalChunk,
    JournalExtent,
    JournalGap,
    PartBatch,
    encode_part,
)
from accord.http.guard import Caller, caller_of
from accord.http.responses import NOT_STORED, json_response, response_schemas
from accord.http.schemas import Problem
from accord.journal.errors import JournalError
from accord.journal.reader import Reader, Retired
from accord.journal.record import MAX_OFFSET, Batch

MAX_BYTES: Final = 16 << 20

_PART: Final[dict[int | str, dict[str, Any]]] = {
    **response_schemas(JournalExtent, _400=Problem, _403=Problem),
    "200": {"description": "A JournalPart as msgpack", "content": {MSGPACK: {}}},
}

Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="Of the first record wanted")]
MaxBytes = Annotated[int, Query(ge=1, le=MAX_BYTES, description="Of records at most, or one")]


def add_journal(app: FastAPI, directory: Path, node: str) -> list[type[msgspec.Struct]]:
    """Add the routes; returns the structs to describe in OpenAPI."""

    @app.get(
        JOURNAL,
        response_class=Response,
        responses=response_schemas(JournalExtent, _403=Problem, _503=Problem),
    )
    async def journal(request: Request) -> Response:
        """Which records can be read now."""
        if refusal := _refusal(caller_of(request.scope)):
            return refusal
        try:
            extent = await asyncio.to_thread(Reader(directory).extent)
        except JournalError as error:
            return json_response(Problem(str(error)), 503, {"Retry-After": "1"})
        return json_response(
            JournalExtent(
                node=node, first_offset=extent.first_offset, next_offset=extent.next_offset
            )
        )

    @app.get(
        RECORDS,
        response_class=Response,
        responses=_PART,
    )
    async def records(request: Request, offset: Offset, max_bytes: MaxBytes = 1 << 20) -> Response:
        """Records from `offset` on, as msgpack: see `accord.core.queries.journal_http`."""
        if refusal := _refusal(caller_of(request.scope)):
            return refusal
        try:
            body = await asyncio.to_thread(_part, directory, node, offset, max_bytes)
        except JournalError as error:
            return json_response(Problem(str(error), "offset"), 400)
        return Response(body, headers=NOT_STORED, media_type=MSGPACK)

    return [JournalExtent, Problem]


def _refusal(caller: Caller) -> Response | None:
    rights = caller.rights.for_client(user=caller.name, client="")
    if rights.may_subscribe("#") and rights.system and not rights.denied.subscribe:
        return None
    who = caller.name or "an anonymous client"
    return json_response(Problem(f"{who} may not read everything: subscribe '#' and system"), 403)


def _part(directory: Path, node: str, offset: int, max_bytes: int) -> bytes:
    reader = Reader(directory)
    end_offset = reader.extent().next_offset
    batches: list[PartBatch] = []
    gaps: list[JournalGap] = []
    next_offset = offset
    retired = None
    for found in reader.read(offset, max_bytes=max_bytes):
        if isinstance(found, Batch):
            data = bytes(found.data)
            batches.append(PartBatch(found.first_offset, found.time_ms, found.lengths, data))
            next_offset = found.end_offset
        elif isinstance(found, Retired):
            next_offset = retired = found.first_available
        else:
            gaps.append(JournalGap(found.offset, found.next_offset, found.why))
            next_offset = found.next_offset
    return encode_part(
        JournalChunk(
            node=node,
            next_offset=next_offset,
            end_offset=end_offset,
            batches=tuple(batches),
            gaps=tuple(gaps),
            retired=retired,
        )
    )
