"""`accord bench`, as a whole."""

from __future__ import annotations

import json

import pytest

from accord.apps.node_process import NodeProcess
from accord.cli import bench
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
    spawned: list[NodeProcess] = []

    class Watched(NodeProcess):
        def wait_ready(self) -> None:
            super().wait_ready()
            spawned.append(self)

    monkeypatch.setattr(bench, "NodeProcess", Watched)
    heard = accord("bench", *QUICK, "--spawn", "--json", "--url", dead_url)
    assert heard.exit_code == 0, heard.stderr
    (node,) = spawned
    fields = json.loads(heard.stdout)
    assert fields["url"] == node.mqtt_url
    assert fields["node_cpu_us_per_event"] > 0
    assert not node.is_running


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
