"""`accord bench`, as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from accord.cli.bench import spawn
from accord.cli.bench.clients import BenchError
from accord.cli.bench.spawn import Spawned, spawned_node
from tests.cli.conftest import Accord

QUICK = ("--seconds", "0.1")


def test_a_running_node(accord: Accord) -> None:
    heard = accord("bench", *QUICK)
    assert heard.exit_code == 0
    for word in ("published", "delivered", "lost", "latency", "p99", "shares this machine"):
        assert word in heard.stdout


def test_json(accord: Accord) -> None:
    heard = accord("bench", *QUICK, "--json", "--rate", "100", "--qos", "1", "--subscribers", "2")
    fields = json.loads(heard.stdout)
    assert fields["delivered"] == 2 * fields["published"] > 0
    assert fields["latency_at_per_s"] == 100
    assert fields["node_cpu_us_per_event"] is None


def test_a_node_of_its_own(accord: Accord, dead_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[Spawned] = []

    @contextmanager
    def watched() -> Iterator[Spawned]:
        with spawned_node() as node:
            spawned.append(node)
            yield node

    monkeypatch.setattr(spawn, "spawned_node", watched)
    heard = accord("bench", *QUICK, "--spawn", "--json", "--url", dead_url)
    assert heard.exit_code == 0, heard.stderr
    (node,) = spawned
    assert json.loads(heard.stdout)["url"] == node.url
    assert node.cpu_s() is None, "it still runs"


def test_it_is_the_same_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that is found by a path from here."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["build/lib", "/opt/x"]))
    here = os.path.join(os.getcwd(), "build", "lib")
    assert spawn._environment()["PYTHONPATH"] == os.pathsep.join([here, "/opt/x"])


def test_a_node_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "_command", lambda _port: ["sh", "-c", "echo no luck; exit 3"])
    with pytest.raises(BenchError, match="the node did not start: no luck"), spawned_node():
        pytest.fail("it did")


def test_no_node(accord: Accord, dead_url: str) -> None:
    heard = accord("bench", *QUICK, "--url", dead_url)
    assert heard.exit_code == 2
    assert f"error: no node answers at {dead_url}" in heard.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "ws://localhost"],
        ["--size", "4"],
        ["--publishers", "0"],
        ["--seconds", "0"],
        ["--qos", "3"],
    ],
)
def test_mistakes(accord: Accord, arguments: list[str]) -> None:
    heard = accord("bench", *arguments)
    assert heard.exit_code == 2
    assert arguments[0] in heard.stderr
