"""Several nodes as processes of their own, linked with each other over loopback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from benchmarks.ports import free_port
from typer.testing import CliRunner, Result

from accord.cli.connection import UnreachableError
from accord.cli.http_client import NodeHttpClient
from accord.cli.main import app
from accord.core.overlay.status import IN_USE, NetStatus
from accord.operations.channels import GetNet
from tests.brokers import HOST, Broker, start_accord

WAIT_S: Final = 60.0
PING_MS: Final = 200


class RunningNode(NamedTuple):
    name: str
    url: str
    http_url: str
    link: str
    broker: Broker

    def status(self) -> NetStatus:
        return NodeHttpClient(self.http_url, None, None).call(GetNet())

    def accord(self, *arguments: str) -> Result:
        """A command that asks this node."""
        environment = {"COLUMNS": "140", "ACCORD_HTTP_URL": self.http_url, "ACCORD_URL": self.url}
        return CliRunner().invoke(app, list(arguments), env=environment)

    def paths(self) -> list[tuple[str, ...]]:
        """All routes in use that it knows of."""
        return [
            route.path
            for flow in self.status().flows
            for route in flow.routes
            if route.state == IN_USE
        ]


@contextmanager
def start_nodes(
    neighbours: Mapping[str, Sequence[str]],
    channels: str = "",
    *,
    killed: Sequence[str] = (),
    secondary: Sequence[str] = (),
    everywhere: str = "",
) -> Iterator[dict[str, RunningNode]]:
    """Each links with those of its `neighbours` that are started before it.

    For those that are `secondary` they are the parents; `channels` are not for them, but what is
    to be configured `everywhere`.
    """
    nodes: dict[str, RunningNode] = {}
    with ExitStack() as stack:
        for name, others in neighbours.items():
            http, link = f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"
            dialled = ", ".join(f'"{nodes[other].link}"' for other in others)
            is_backbone = name not in secondary
            place = f'listen = "{link}"' if is_backbone else 'tier = "secondary"'
            config = f"""
[node]
name = "{name}"
[net]
{place}
neighbours = [{dialled}]
ping_ms = {PING_MS}
{channels if is_backbone else ""}
{everywhere}
"""
            broker = stack.enter_context(
                start_accord(config=config, extra=["--http", http], is_killed=name in killed)
            )
            url = f"mqtt://{HOST}:{broker.port}"
            nodes[name] = RunningNode(name, url, f"http://{http}", link, broker)
        backbone = [name for name in nodes if name not in secondary]
        for node in nodes.values():
            wanted = neighbours[node.name] if node.name in secondary else backbone
            wait_until(lambda node=node, wanted=wanted: _knows(node, wanted))  # type: ignore[misc]
        yield nodes


def wait_until(is_so: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s, "that does not happen"
        time.sleep(0.02)


def _knows(node: RunningNode, wanted: Sequence[str]) -> bool:
    """All nodes of the backbone, or its parents."""
    assert node.broker.process.poll() is None, f"{node.name} ended by itself"
    try:
        status = node.status()
    except UnreachableError:
        return False  # its HTTP comes up last
    parents = [] if status.tier is None else status.tier.parents
    found = [each.name for each in status.nodes if each.is_reachable]
    return sorted([*found, *(each.name for each in parents if each.is_linked)]) == sorted(wanted)
