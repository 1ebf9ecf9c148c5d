"""Processes of a run: each tells its progress in lines, and is killed or asked to end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from accord.pipeline.driver_lock import started_of

ROOT: Final = Path(__file__).parent.parent.parent.parent
_SOURCE: Final = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
PATIENCE_S: Final = 240.0  # Spark starts slowly where much else runs


class Told:
    """A process of a script beside this file, and what it says."""

    def __init__(self, script: str, *arguments: str, log: Path) -> None:
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).parent / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *_SOURCE])},
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def offset(self) -> int:
        """The last one told."""
        return next((int(line) for line in reversed(self.lines) if line.isdigit()), 0)

    @property
    def java(self) -> int | None:
        for line in self.lines:
            if line.startswith("java "):
                return int(line[5:])
        return None

    @property
    def problems(self) -> list[str]:
        return [line[8:] for line in self.lines if line.startswith("problem ") and line[8:]]

    def wait_until(self, is_true: Callable[[], bool], what: str) -> None:
        """Raises where the process ends before, or it takes too long."""
        end_s = time.monotonic() + PATIENCE_S
        with self._news:
            while not is_true():
                if not self._thread.is_alive():
                    raise AssertionError(f"ended before {what}: {self.lines[-3:]}")
                if time.monotonic() > end_s:
                    raise AssertionError(f"too long for {what}: {self.lines[-3:]}")
                self._news.wait(0.1)

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def end(self) -> int:
        """Ask it to; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self.close()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._thread.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._log.close()


def wait_for_end(process: int, patience_s: float = 60.0) -> bool:
    """Of a process that is not our child; False where it lives on."""
    end_s = time.monotonic() + patience_s
    while started_of(process):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def end_of_input() -> threading.Event:
    """Set when whoever started this process wants its end, or has ended himself."""
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    return ended
