"""The threads of the pipeline process: one opens the service, one ticks, others carry messages.

The exit code shows whether a restart may help: 0 stopped on request, 1 probably, 2 only after an
operator has changed something.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from accord.core.model.errors import AccordError
from accord.core.queries.messages import FrameError
from accord.pipeline.conversion import ConversionError
from accord.pipeline.service import PipelineService
from accord.pipeline.spark_errors import summary
from accord.pipeline.tables import TablesError

RETRY: Final = 1
HOPELESS: Final = 2
_STOP_S: Final = 12.0
_log: Final = logging.getLogger("accord.pipeline")


class Process:
    """Runs the service; `end` is called if it can't go on, and must let `run` return."""

    def __init__(
        self,
        service: PipelineService,
        *,
        end: Callable[[], object],
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self.code = 0
        self._service = service
        self._end = end
        self._also_tick = tick
        self._ending = threading.Event()
        self._opening = threading.Thread(target=self._open, name="start", daemon=True)
        self._ticking = threading.Thread(target=self._tick, name="tick", daemon=True)

    def run(self, work: Callable[[], object]) -> None:
        """Run until `work` returns."""
        self._opening.start()
        self._ticking.start()
        try:
            work()
        except FrameError as error:
            self.code = HOPELESS
            _log.error("pipeline: protocol error: %s", error)
        self._ending.set()
        if not self._opening.is_alive():  # nothing to close if it has not opened
            self._service.close(_STOP_S)

    def _open(self) -> None:
        try:
            self._service.open()
            _log.info("pipeline: ready")
        except Exception as error:  # from Spark, Java or the disk
            is_hopeless = isinstance(error, TablesError | ConversionError)
            self._fail(error, HOPELESS if is_hopeless else RETRY)

    def _tick(self) -> None:
        while not self._ending.wait(1.0):
            try:
                self._service.tick()
                self._also_tick()
            except Exception:
                _log.exception("health report: failed")
            if why := self._service.why_broken():
                self._fail(AccordError(why), RETRY)

    def _fail(self, error: Exception, code: int) -> None:
        if self._ending.is_set():
            return
        _log.error(
            "pipeline: failed: %s", summary(error), exc_info=not isinstance(error, AccordError)
        )
        self.code = code
        self._service.fail(summary(error))
        self._end()


def quiet_libraries() -> None:
    """Have them log no more than warnings."""
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def leave(code: int) -> NoReturn:
    """End at once: threads blocked in Java must not delay the exit."""
    end_children()
    logging.shutdown()
    os._exit(code)


def end_children() -> None:
    """End Java now; it would exit by itself a second later, which would delay the shutdown."""
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError, ValueError):
            for child in map(int, path.read_text().split()):
                os.kill(child, signal.SIGKILL)
