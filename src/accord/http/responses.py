"""JSON bodies over HTTP: responses from structs, and bounded reading of requests.

Responses are described in OpenAPI, which FastAPI cannot derive. Requests are limited in type, size
and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import Response
from msgspec import Struct

from accord.http.schemas import Problem

NOT_STORED: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_REFERENCE: Final = "#/components/schemas/{name}"


def json_response(
    value: Struct, code: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(
        msgspec.json.encode(value),
        code,
        headers={**NOT_STORED, **(headers or {})},
        media_type="application/json",
    )


def response_schemas(
    type_: type[Struct], **others: type[Struct]
) -> dict[int | str, dict[str, Any]]:
    """Schemas for `responses=`; `others` by their status code, such as `_404`."""
    codes = {code.removeprefix("_"): each for code, each in others.items()}
    return {code: _described(each) for code, each in {"200": type_, **codes}.items()}


def describe(app: FastAPI, structs: Sequence[type[Struct]]) -> None:
    """Add the returned structs to OpenAPI, as FastAPI cannot derive them."""
    _, components = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        document.setdefault("components", {}).setdefault("schemas", {}).update(components)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _described(type_: type[Struct]) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(name=type_.__name__)}
    first_paragraph = (type_.__doc__ or "").partition("\n\n")[0]
    words = " ".join(first_paragraph.split())
    return {"description": words, "content": {"application/json": {"schema": schema}}}


BODY_TIMEOUT_S: Final = 30.0


class BodyRefused(Exception):  # noqa: N818 - an answer, not a mistake of ours
    def __init__(self, code: int, problem: str, place: str = "") -> None:
        self.code = code
        self.problem = Problem(problem, place)


async def read_body(request: Request, kinds: tuple[str, ...], most: int) -> tuple[bytearray, str]:
    """The body and its media type; raises if the type is not among `kinds` or it is too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        expected = " or ".join(kinds)
        raise BodyRefused(415, f"expected {expected} as content type, got {kind or 'none'}")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                data += part
                if len(data) > most:
                    raise BodyRefused(413, f"expected at most {most} bytes")
    except TimeoutError:
        raise BodyRefused(408, f"expected all of it within {BODY_TIMEOUT_S:.0f} s") from None
    return data, kind
