from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from benchmarks.ports import free_port
from typer.testing import CliRunner, Result

from accord.cli.main import app
from tests.brokers import HOST, start_accord

_numbers = itertools.count(1)

Accord = Callable[..., Result]


class RunningNode(NamedTuple):
    url: str
    http_url: str


def wait_for(port: int) -> None:
    """Until something listens there; the test's time-out is the limit."""
    while True:
        with suppress(OSError), socket.create_connection((HOST, port)):
            return
        time.sleep(0.02)


@pytest.fixture(scope="session")
def node() -> Iterator[RunningNode]:
    """A node for all tests of commands: none may stop it."""
    http_port = free_port()
    with start_accord(extra=["--http", f"{HOST}:{http_port}"]) as broker:
        wait_for(http_port)
        yield RunningNode(f"mqtt://{HOST}:{broker.port}", f"http://{HOST}:{http_port}")


@pytest.fixture
def dead_url() -> str:
    """Where nothing listens."""
    return f"mqtt://{HOST}:{free_port()}"


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"c{next(_numbers)}/channel"


@pytest.fixture
def accord(node: RunningNode) -> Accord:
    """The command, which finds the node by the environment."""

    def run(*arguments: str, stdin: str | bytes | None = None, **environment: str) -> Result:
        variables = {"COLUMNS": None, "ACCORD_URL": node.url, **environment}
        variables["ACCORD_HTTP_URL"] = node.http_url
        return CliRunner().invoke(app, list(arguments), input=stdin, env=variables)

    return run
