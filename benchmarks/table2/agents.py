"""Publishers and subscribers as processes: started, told what to do, asked what they saw."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from accord.apps.load.frames import LoadError

_STOP_S: Final = 5

Result = TypeVar("Result", bound=msgspec.Struct)


class Agent:
    """A process that follows the protocol of `plans`."""

    def __init__(self, module: str, plan: msgspec.Struct, inside: Sequence[str]) -> None:
        self._name = module
        command = [*inside, sys.executable, "-m", f"benchmarks.table2.{module}"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is ours; we tell it to end
        )
        self.tell(msgspec.json.encode(plan).decode())

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise self._failure()

    def tell(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def result(self, kind: type[Result]) -> Result:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        return msgspec.json.decode(line, type=kind)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _failure(self) -> LoadError:
        self._process.terminate()
        assert self._process.stderr is not None
        said = self._process.stderr.read().strip().splitlines()[-1:]
        return LoadError(f"{self._name}: {' '.join(said) or 'it ended'}")


@contextmanager
def agent(module: str, plan: msgspec.Struct, inside: Sequence[str] = ()) -> Iterator[Agent]:
    running = Agent(module, plan, inside)
    try:
        yield running
    finally:
        running.stop()
