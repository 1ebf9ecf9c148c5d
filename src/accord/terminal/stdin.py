"""Standard input without blocking the event loop.

A thread that waits for a user to type can't be stopped, so the loop watches the descriptor. Input
that can't be watched (files, devices) never blocks for long, and is read directly.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

from accord.core.model.errors import InputError

NAME: Final = "standard input"
MAX_LINE_BYTES: Final = 1024 * 1024

_CHUNK: Final = 65_536


async def read_chunks() -> AsyncIterator[bytes]:
    """Data as it arrives."""
    try:
        descriptor = sys.stdin.fileno()
    except OSError:  # an in-memory stream
        while chunk := sys.stdin.buffer.read(_CHUNK):
            yield chunk
        return
    while True:
        await _until_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return
        yield chunk


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, is_readable.set)
    except OSError:
        return
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)


async def read_all(limit: int) -> bytes:
    """Everything up to the end; InputError if longer than `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    async for chunk in read_chunks():
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise InputError(NAME, f"expected at most {limit} bytes")
    return b"".join(parts)


async def read_payload_lines() -> AsyncIterator[bytes]:
    """Lines without line ends; InputError if one is longer than `MAX_LINE_BYTES`."""
    rest = b""
    number = 0
    async for chunk in read_chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            yield _checked(line, number)
        _checked(rest, number + 1)
    if rest:
        yield _checked(rest, number + 1)


def _checked(line: bytes, number: int) -> bytes:
    if len(line) > MAX_LINE_BYTES:
        problem = f"expected at most {MAX_LINE_BYTES} bytes in a line"
        raise InputError(f"{NAME}:{number}", problem)
    return line.removesuffix(b"\r")
