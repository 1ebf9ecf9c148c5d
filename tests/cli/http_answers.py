"""A server over HTTP that answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from tests.brokers import HOST


@contextmanager
def answering(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[str]:
    """Its address; `answer` gives code and content for a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, content = answer(self.path)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
