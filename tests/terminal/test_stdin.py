from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from accord.core.model.errors import InputError
from accord.terminal.stdin import MAX_LINE_BYTES, read_all, read_payload_lines


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[IO[bytes]]:
    """The writing end of standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writer


def in_memory(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


async def all_lines() -> list[bytes]:
    return [line async for line in read_payload_lines()]


def test_a_line_is_there_as_soon_as_it_is_written(pipe: IO[bytes]) -> None:
    async def converse() -> None:
        lines = read_payload_lines()
        pipe.write(b"first\nsec")
        assert await anext(lines) == b"first"
        following = asyncio.ensure_future(anext(lines))
        pipe.write(b"ond\r\n\nlast")
        assert await following == b"second"
        assert await anext(lines) == b""
        pipe.close()
        assert await anext(lines) == b"last"
        assert await anext(lines, None) is None

    asyncio.run(converse())


def test_waiting_for_input_can_be_given_up(pipe: IO[bytes]) -> None:
    async def wait() -> None:
        waiting = asyncio.ensure_future(anext(read_payload_lines()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(wait())


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\ntwo\n")
    with path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert asyncio.run(all_lines()) == [b"one", b"two"]


def test_a_line_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory(monkeypatch, b"fine\n" + b"x" * (MAX_LINE_BYTES + 1))
    with pytest.raises(InputError, match="standard input:2: expected at most"):
        asyncio.run(all_lines())


def test_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 1_000
    in_memory(monkeypatch, data)
    assert asyncio.run(read_all(len(data))) == data
    in_memory(monkeypatch, data)
    with pytest.raises(InputError, match=f"at most {len(data) - 1} bytes"):
        asyncio.run(read_all(len(data) - 1))
