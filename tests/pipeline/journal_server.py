"""A node that serves its journal over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import msgspec

from accord.core.queries.journal_http import JournalChunk, JournalExtent, PartBatch, encode_part
from accord.journal.reader import Reader, Retired
from accord.journal.record import Batch

Answer = tuple[int, bytes]


class FakeNode:
    """Serves a journal as a node does; `before` may answer in its place."""

    def __init__(self, folder: Path, name: str = "denver") -> None:
        self.folder = folder
        self.name = name
        self.asked: list[str] = []
        self.named: list[str | None] = []
        self.before: Callable[[str], Answer | None] = lambda _: None

    def answer(self, path: str) -> Answer:
        parts = urlsplit(path)
        extent = Reader(self.folder).extent()
        if parts.path == "/api/v1/journal":
            told = JournalExtent(
                node=self.name, first_offset=extent.first_offset, next_offset=extent.next_offset
            )
            return 200, msgspec.json.encode(told)
        assert parts.path == "/api/v1/journal/records"
        asked = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
        batches: list[PartBatch] = []
        next_offset, retired = asked["offset"], None
        for found in Reader(self.folder).read(asked["offset"], max_bytes=asked["max_bytes"]):
            if isinstance(found, Retired):
                next_offset = retired = found.first_available
            else:
                assert isinstance(found, Batch)
                data = bytes(found.data)
                batches.append(PartBatch(found.first_offset, found.time_ms, found.lengths, data))
                next_offset = found.end_offset
        part = JournalChunk(
            node=self.name,
            next_offset=next_offset,
            end_offset=extent.next_offset,
            batches=tuple(batches),
            retired=retired,
        )
        return 200, encode_part(part)


@contextmanager
def serving(node: FakeNode) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            node.asked.append(self.path)
            node.named.append(self.headers.get("Authorization"))
            code, body = node.before(self.path) or node.answer(self.path)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
