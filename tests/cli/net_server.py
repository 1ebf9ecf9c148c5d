"""The HTTP API over a fake overlay, for commands to ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from typer.testing import CliRunner, Result

from accord.cli.main import app as commands
from accord.http.app import create_app
from accord.http.server import serve
from accord.operations.ports import AdmissionPort, NodePorts
from accord.runtime.addresses import SocketAddress
from accord.runtime.users import Users
from tests.fake_net import FakeNet
from tests.fake_node import FakeNode


@contextmanager
def serving(
    net: FakeNet | None, users: Users | None = None, *, admission: AdmissionPort | None = None
) -> Iterator[str]:
    app = create_app(NodePorts(view=FakeNode(), net=net, admission=admission), users=users)
    urls: list[str] = []
    has_started = threading.Event()
    loop = asyncio.new_event_loop()
    should_stop = asyncio.Event()

    async def run() -> None:
        server = await serve(app, SocketAddress("127.0.0.1", 0))
        urls.append(f"http://{server.address}")
        has_started.set()
        await should_stop.wait()
        await server.stop()

    def main() -> None:
        loop.run_until_complete(run())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=main)
    thread.start()
    try:
        has_started.wait()
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(should_stop.set)
        thread.join()


def run(url: str, *arguments: str, width: int | None = 120, **environment: str) -> Result:
    """With no width, as in a pipe."""
    columns = None if width is None else str(width)
    variables = {"COLUMNS": columns, "ACCORD_HTTP_URL": url, **environment}
    return CliRunner().invoke(commands, list(arguments), env=variables)


def lines(result: Result) -> list[str]:
    """What it said, without rules and empty lines."""
    assert result.exit_code == 0, result.output
    found = [" ".join(line.split()) for line in result.stdout.splitlines()]
    return [line for line in found if line and "──" not in line]
