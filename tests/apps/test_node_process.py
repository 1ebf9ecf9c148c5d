"""A node in a process of its own."""

from __future__ import annotations

import pytest

from accord.apps.node_process import PLAIN, NodeProcess, NodeProcessError


def test_a_node_that_does_not_start_says_why() -> None:
    refusal = pytest.raises(NodeProcessError, match=r"did not start.*nonsense")
    with NodeProcess("[nonsense]\n") as node, refusal:
        node.wait_ready()


def test_addresses_and_end() -> None:
    with NodeProcess(f'{PLAIN}[net]\nlisten = "127.0.0.1:0"\n') as node:
        node.wait_ready()
        assert node.mqtt_url.startswith("mqtt://127.0.0.1:")
        assert node.http_url.startswith("http://127.0.0.1:")
        assert node.links_port > 0
        assert node.is_running
        assert node.cpu_s()
    assert not node.is_running
