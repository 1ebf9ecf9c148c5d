"""The HTTP API over a fake ledger, for commands to ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import typer
from fastapi import FastAPI
from typer.testing import CliRunner, Result

from accord.api.ledger import add_ledger
from accord.cli.main import Commands
from accord.cli.top import top
from accord.cli.why import why
from tests.brokers import HOST
from tests.fake_ledger import FakeLedger

commands = typer.Typer(cls=Commands)
commands.command("why")(why)
commands.command("top")(top)


@contextmanager
def serving(view: FakeLedger) -> Iterator[str]:
    app = FastAPI()
    add_ledger(app, view)

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = asyncio.run(ask(self.path))
            self.send_response(answer.status_code)
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def run(url: str, *arguments: str, width: int = 100) -> Result:
    environment = {"COLUMNS": str(width), "ACCORD_HTTP_URL": url}
    return CliRunner().invoke(commands, list(arguments), env=environment)
