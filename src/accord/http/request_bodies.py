"""Reads request bodies, limited in type, size and time."""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import Request

from accord.http.policy_schemas import Problem

PATIENCE_S: Final = 30.0


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
        async with asyncio.timeout(PATIENCE_S):
            async for part in request.stream():
                data += part
                if len(data) > most:
                    raise BodyRefused(413, f"expected at most {most} bytes")
    except TimeoutError:
        raise BodyRefused(408, f"expected all of it within {PATIENCE_S:.0f} s") from None
    return data, kind
