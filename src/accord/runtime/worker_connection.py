"""One worker process and the pipes to it, as seen by the node."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Final, cast

import msgspec

from accord.core.model.errors import AccordError
from accord.runtime.worker_jobs import LENGTH, MAX_FRAME, Ready, Reply, Work, frame, read_reply

START_LIMIT_S: Final = 60.0  # the machine may be busy; a worker that hangs is abandoned then
_END_S: Final = 5.0
_STDIN: Final = 0
_STDOUT: Final = 1


class WorkerDiedError(AccordError):
    """A worker process ended, or sent garbage, before it replied."""


class WorkerConnection(asyncio.SubprocessProtocol):
    """The connection to one worker process; `replies` ends with None."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[Reply | None] = asyncio.Queue()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.SubprocessTransport | None = None
        self._received = bytearray()

    @classmethod
    async def start(cls, memory_mb: int, time_limit_s: float) -> WorkerConnection:
        """Start a process and wait until it is ready. Raises WorkerDiedError if it never is."""
        command = [sys.executable, "-P", "-m", "accord.runtime.worker_process"]
        try:
            _, line = await asyncio.get_running_loop().subprocess_exec(
                cls,
                *command,
                str(memory_mb),
                str(time_limit_s),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C goes to the node, which then stops it
            )
        except OSError as error:
            raise WorkerDiedError(f"can't start a worker process: {error}") from None
        try:
            async with asyncio.timeout(START_LIMIT_S):
                if not isinstance(await line.next(), Ready):
                    raise WorkerDiedError("worker process failed to start")
        except BaseException as error:
            await line.end()
            if isinstance(error, TimeoutError):
                raise WorkerDiedError("worker process not ready in time") from None
            raise
        return line

    @property
    def pid(self) -> int:
        return self._process().get_pid()

    @property
    def is_open(self) -> bool:
        return not self._closed.done() and self._process().get_returncode() is None

    def send(self, work: Work) -> None:
        pipe = cast(asyncio.WriteTransport | None, self._process().get_pipe_transport(_STDIN))
        if pipe is None:
            raise WorkerDiedError("idle worker process exited")
        pipe.write(frame(work))

    async def next(self) -> Reply:
        """The next reply. Raises WorkerDiedError if there will be none."""
        reply = await self.replies.get()
        if reply is None:
            self.replies.put_nowait(None)
            raise WorkerDiedError(await self._exit_reason())
        return reply

    async def end(self) -> None:
        """Kill the process and wait until it and its pipes are closed."""
        self._kill()
        # Wait for the child watcher first: closing would reap the process before it.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._exited)
        self._process().close()  # the pipes too: child processes may hold them open
        await asyncio.shield(self._closed)

    async def _exit_reason(self) -> str:
        await self.end()
        code = self._process().get_returncode()
        if code is None or code >= 0:
            return f"worker process exited with code {code}"
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        return f"worker process killed by {name}"

    def _kill(self) -> None:
        """Kill the process group, including what a plug-in started."""
        if self._process().get_returncode() is None:
            with suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self._process().kill()

    def _process(self) -> asyncio.SubprocessTransport:
        assert self._transport is not None
        return self._transport

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != _STDOUT:
            return
        self._received += data
        while len(self._received) >= LENGTH:
            end = LENGTH + int.from_bytes(self._received[:LENGTH], "big")
            if end > MAX_FRAME:
                self._abandon()
                return
            if len(self._received) < end:
                return
            body = bytes(memoryview(self._received)[LENGTH:end])
            del self._received[:end]
            try:
                self.replies.put_nowait(read_reply(body))
            except msgspec.DecodeError:
                self._abandon()
                return

    def _abandon(self) -> None:
        """Kill a worker that was compromised or is broken; its further output is ignored."""
        self._received.clear()
        self.replies.put_nowait(None)
        self._kill()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == _STDOUT:
            self.replies.put_nowait(None)

    def process_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)
        self.replies.put_nowait(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The process has ended and all pipes are closed."""
        self.replies.put_nowait(None)
        if not self._closed.done():
            self._closed.set_result(None)
