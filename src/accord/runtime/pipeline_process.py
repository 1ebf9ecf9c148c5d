"""One process of the data pipeline and the socket to it, as seen by the node.

The process leads its own session, which includes Spark's JVM. To stop it, the socket is closed,
which requests an orderly end; if it does not exit it is terminated, and then whatever is left of
the session: a JVM outlives its driver by a moment, and must not meet the next one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, cast

from accord.core.queries.messages import (
    FrameError,
    FromNode,
    FromPipeline,
    PageFrames,
    decode_from_pipeline,
    encode_frame,
)

OUTPUT: Final = "pipeline.out"
OLD_OUTPUT: Final = f"{OUTPUT}.1"
MAX_OUTPUT: Final = 1_000_000
MAX_LINES: Final = 10
_MAX_LINE: Final = 300
_SHOWN: Final = 8_192
_NOISE: Final = ("WARNING: Using incubator modules",)  # printed by Java at each start
_POLL_S: Final = 0.05
_END_S: Final = 5.0
_GROUP_S: Final = 2.0


class PipelineProcess(asyncio.Protocol):
    """`on_message` receives its messages; `has_ended` is set when no more will come."""

    def __init__(self, output: Path, on_message: Callable[[FromPipeline], None]) -> None:
        self.problem = ""  # protocol violation
        self.received_s = time.monotonic()
        self.has_ended = asyncio.Event()
        self._output = output
        self._on_message = on_message
        self._frames = PageFrames()
        self._transport: asyncio.Transport | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._exit: asyncio.Task[int] | None = None
        self._start = 0  # offset of its output in the file
        self._moved = b""  # the end of its output when the file was rotated

    async def start(self, command: Sequence[str]) -> None:
        """Start the process. Raises OSError if that fails."""
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            self.bound_output()
            self._moved = b""
            with theirs, self._output.open("ab") as output:
                output.write(f"--- started at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n".encode())
                output.flush()
                self._start = output.tell()
                await self._spawn([*command, "--fd", str(theirs.fileno())], theirs, output)
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: self, sock=ours)
        except BaseException:
            await self.stop(0, 0)
            if self._transport is None:  # otherwise the transport owns it
                ours.close()
            raise

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code."""
        return None if self._process is None else self._process.returncode

    def send(self, message: FromNode) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode_frame(message))

    async def stop(self, timeout_s: float, term_s: float = _END_S) -> None:
        """Request its end, wait `timeout_s`, then terminate it; no process is left afterwards."""
        if self._transport is not None:
            self._transport.abort() if timeout_s == 0 else self._transport.close()
        if self._process is None or self._exit is None:
            return
        if not await self._exits_within(timeout_s):
            # Not through the process object, which would reap it before the waiting task does.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            await self._exits_within(term_s)
        await self._end_group(within_s=_GROUP_S if self.code == 0 else 0.0)
        await self._exits_within(_END_S)

    def last_lines(self) -> tuple[str, ...]:
        """The last lines printed by this process, without those of earlier ones."""
        with suppress(OSError), self._output.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(min(self._start, size), size - _SHOWN))
            text = (self._moved + file.read(_SHOWN))[-_SHOWN:].decode(errors="replace")
            lines = (line.rstrip()[:_MAX_LINE] for line in text.splitlines())
            return tuple(line for line in lines if line and not line.startswith(_NOISE))[
                -MAX_LINES:
            ]
        return ()

    def bound_output(self) -> None:
        """Rotate the output file if it is too long; the process keeps appending to it."""
        with suppress(OSError):
            size = self._output.stat().st_size
            if size > MAX_OUTPUT:
                with self._output.open("rb") as file:
                    file.seek(size - MAX_OUTPUT)
                    end = file.read(MAX_OUTPUT)
                self._output.with_name(OLD_OUTPUT).write_bytes(end)
                os.truncate(self._output, 0)
                own = min(_SHOWN, max(size - self._start, 0))
                self._moved = end[len(end) - own :]
                self._start = 0

    async def _spawn(self, command: Sequence[str], theirs: socket.socket, output: BinaryIO) -> None:
        """Completes even if cancelled: a half-started process could not be stopped."""
        spawning = asyncio.create_task(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
                start_new_session=True,  # Ctrl-C goes to the node, which then stops it
            )
        )
        try:
            await asyncio.wait([spawning])
        finally:
            self._process = await spawning
            self._exit = asyncio.create_task(self._wait(self._process))

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        code = await process.wait()
        self.has_ended.set()
        return code

    async def _exits_within(self, limit_s: float) -> bool:
        assert self._exit is not None
        await asyncio.wait([self._exit], timeout=limit_s)
        return self._exit.done()

    async def _end_group(self, *, within_s: float) -> None:
        """Wait `within_s` for the JVM and its children to exit, then kill them."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and self._signal_group(0):
            await asyncio.sleep(_POLL_S)
        until_s = time.monotonic() + _GROUP_S
        while self._signal_group(signal.SIGKILL) and time.monotonic() < until_s:
            await asyncio.sleep(_POLL_S)

    def _signal_group(self, number: int) -> bool:
        """False if no process is left."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received_s = time.monotonic()
        if self.problem:
            return
        try:
            for body in self._frames.feed(data):
                self._on_message(decode_from_pipeline(body))
        except FrameError as error:
            self.problem = f"invalid message: {error}"
            self.has_ended.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.has_ended.set()


def _environment() -> dict[str, str]:
    """The node's environment, with absolute module paths, as Spark changes directories."""
    environment = dict(os.environ)
    path = environment.get("PYTHONPATH")
    if path:
        parts = (os.path.abspath(part) for part in path.split(os.pathsep) if part)
        environment["PYTHONPATH"] = os.pathsep.join(parts)
    return environment
