"""The HTTP API over a fake ledger, for commands to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import typer
from typer.testing import CliRunner, Result

from accord.cli import channel, clients
from accord.cli.main import Commands
from accord.cli.top import top
from accord.cli.why import why
from accord.http.app import create_app
from accord.operations.ports import NodePorts
from tests.cli.http_answers import answering
from tests.fake_ledger import FakeLedger
from tests.fake_node import FakeNode

commands = typer.Typer(cls=Commands)
commands.command("why")(why)
commands.command("top")(top)
commands.add_typer(channel.app, name="channel")
commands.add_typer(clients.app, name="clients")


@contextmanager
def serving(view: FakeLedger) -> Iterator[str]:
    app = create_app(NodePorts(view=FakeNode(), ledger=view))

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    def answer(path: str) -> tuple[int, bytes]:
        response = asyncio.run(ask(path))
        return response.status_code, response.content

    with answering(answer) as url:
        yield url


def run(url: str, *arguments: str, width: int = 100) -> Result:
    environment = {"COLUMNS": str(width), "ACCORD_HTTP_URL": url}
    return CliRunner().invoke(commands, list(arguments), env=environment)
