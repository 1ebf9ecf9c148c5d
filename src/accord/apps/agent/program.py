"""The program under an agent: run with a configuration, and restarted or signalled on changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from accord.apps.agent.settings import AgentError, AgentSettings, fill
from accord.core.quality.properties import Value


class Program:
    """A supervised process; `ended` has its exit code, or the reason why it cannot run any more."""

    def __init__(self, settings: AgentSettings, command: Sequence[str]) -> None:
        self.values: dict[str, Value] = {
            each.property: each.current for each in settings.capabilities
        }
        self.starts = 0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def start(self) -> None:
        self._write()
        await self._spawn()

    async def adapt(self, name: str, value: Value) -> bool:
        """Run with another value; returns False if that failed and the program has ended."""
        try:
            await self._adapt(name, value)
        except AgentError as error:
            if not self.ended.done():
                self.ended.set_exception(error)
            return False
        return True

    async def _adapt(self, name: str, value: Value) -> None:
        if self._process is not None and self.values[name] == value:
            return  # a restart lowers the rate for a while, which causes the same advice again
        self.values[name] = value
        self._write()
        if self._settings.apply and self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(self._settings.apply)
            return
        await self.stop()
        await self._spawn()

    async def stop(self) -> None:
        """Terminate the program, and kill it after a timeout."""
        process, self._process = self._process, None
        if self._watching is not None:
            self._watching.cancel()
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._settings.stop_s)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _write(self) -> None:
        """Write the configuration atomically: the program must never read half of it."""
        config = self._settings.config
        unfinished = config.with_name(f".{config.name}.{os.getpid()}")
        try:
            unfinished.write_text(fill(self._settings.template, self.values))
            unfinished.replace(config)
        except OSError as error:
            problem = f"can't be written: {error.strerror or error}"
            raise AgentError(str(config), problem) from None

    async def _spawn(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL
            )
        except OSError as error:
            problem = f"can't be started: {error.strerror or error}"
            raise AgentError(self._command[0], problem) from None
        self.starts += 1
        self._process = process
        self._watching = asyncio.create_task(self._watch(process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if self._process is process and not self.ended.done():
            self.ended.set_result(code)
