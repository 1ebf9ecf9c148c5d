"""`python -m accord.pipeline --fd N`: the pipeline process of the node at the other end of socket
N.

It exits when the socket closes, or on SIGTERM.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import logging.handlers
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from accord.core.queries.messages import (
    FrameError,
    FromNode,
    FromPipeline,
    PageFrames,
    StartPipeline,
    decode_from_node,
    encode_frame,
)
from accord.pipeline.node_service import NodeService
from accord.pipeline.process import HOPELESS, Process, leave, quiet_libraries
from accord.pipeline.service import PipelineService

LOG: Final = "pipeline.log"
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
    service = PipelineService(start)
    node = service.connect(start.node, line.send)
    process = Process(service, end=line.end, tick=lambda: service.tick_node(node))
    process.run(lambda: _carry(line, node))
    _log.info("pipeline: ended, code %d", process.code)
    return process.code


def _carry(line: NodeSocket, node: NodeService) -> None:
    while (message := line.receive()) is not None:
        node.handle(message)


def _keep_quiet(work: Path) -> None:
    """Print nothing except on a crash; the node keeps the end of that output."""
    work.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(work / LOG, maxBytes=_LOG_BYTES, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    quiet_libraries()


if __name__ == "__main__":
    leave(main())
