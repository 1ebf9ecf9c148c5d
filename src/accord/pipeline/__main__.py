"""`python -m accord.pipeline --fd N`: the pipeline process of the node at the other end of socket
N.

It exits when the socket closes, or on SIGTERM. The exit code shows the node whether a restart may
help: 0 stopped on request, 1 probably, 2 only after an operator has changed something.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import logging.handlers
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from accord.core.model.errors import AccordError
from accord.core.queries.messages import (
    FrameError,
    FromNode,
    FromPipeline,
    PageFrames,
    StartPipeline,
    decode_from_node,
    encode_frame,
)
from accord.pipeline.java import JavaError
from accord.pipeline.service import PipelineService
from accord.pipeline.spark_errors import summary
from accord.pipeline.tables import TablesError

LOG: Final = "pipeline.log"
RETRY: Final = 1
HOPELESS: Final = 2
_STOP_S: Final = 12.0
_LOG_BYTES: Final = 1 << 20
_PIECE: Final = 1 << 18
_log: Final = logging.getLogger("accord.pipeline")


class NodeSocket:
    """The socket to the node; sends and receives whole messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = PageFrames()
        self._sending = threading.Lock()
        self._waiting: list[bytes] = []

    def send(self, message: FromPipeline) -> None:
        """Send a message; write errors are ignored, because `receive` detects a closed socket."""
        with self._sending, suppress(OSError):
            self._socket.sendall(encode_frame(message))

    def receive(self) -> FromNode | None:
        """Return the next message, or None at the end."""
        while not self._waiting:
            try:
                data = self._socket.recv(_PIECE)
            except OSError:
                return None
            if not data:
                return None
            self._waiting = self._frames.feed(data)[::-1]
        return decode_from_node(self._waiting.pop())

    def end(self) -> None:
        """Close the socket; a blocked `receive` returns None."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)


class Process:
    """The service's threads: this one reads, one opens the service, one ticks."""

    def __init__(self, line: NodeSocket, start: StartPipeline) -> None:
        self.code = 0
        self._socket = line
        self._service = PipelineService(start, line.send)
        self._ending = threading.Event()
        self._opening = threading.Thread(target=self._open, name="start", daemon=True)
        self._ticking = threading.Thread(target=self._tick, name="tick", daemon=True)

    def run(self) -> None:
        """Run until the socket closes."""
        self._opening.start()
        self._ticking.start()
        try:
            while (message := self._socket.receive()) is not None:
                self._service.handle(message)
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
            is_hopeless = isinstance(error, JavaError | TablesError)
            self._fail(error, HOPELESS if is_hopeless else RETRY)

    def _tick(self) -> None:
        while not self._ending.wait(1.0):
            try:
                self._service.tick()
            except Exception:
                _log.exception("health report: failed")
            if self._service.is_broken:
                self._fail(AccordError(self._service.why_broken()), RETRY)

    def _fail(self, error: Exception, code: int) -> None:
        if self._ending.is_set():
            return
        _log.error(
            "pipeline: failed: %s", summary(error), exc_info=not isinstance(error, AccordError)
        )
        self.code = code
        self._service.fail(summary(error))
        self._socket.end()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m accord.pipeline", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket to the node")
    fd: int = parser.parse_args(arguments).fd
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides
    line = NodeSocket(socket.socket(fileno=fd))
    signal.signal(signal.SIGTERM, lambda *_: line.end())
    try:
        start = line.receive()
    except FrameError as error:
        print(f"accord.pipeline: {error}", file=sys.stderr)
        return HOPELESS
    if start is None:
        return 0
    if not isinstance(start, StartPipeline):
        print("accord.pipeline: expected Start as the first message", file=sys.stderr)
        return HOPELESS
    _keep_quiet(Path(start.work))
    process = Process(line, start)
    process.run()
    _log.info("pipeline: ended, code %d", process.code)
    return process.code


def _keep_quiet(work: Path) -> None:
    """Print nothing except on a crash; the node keeps the end of that output."""
    work.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(work / LOG, maxBytes=_LOG_BYTES, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _end_children() -> None:
    """End Java now; it would exit by itself a second later, which would delay the shutdown."""
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError, ValueError):
            for child in map(int, path.read_text().split()):
                os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    code = main()
    _end_children()
    logging.shutdown()
    os._exit(code)  # threads blocked in Java must not delay the exit
