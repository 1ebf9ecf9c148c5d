"""Routes follow the history of links and nodes: which of them were down how often."""

from __future__ import annotations

import pytest
from tests.overlay_network import MS, OverlayNetwork, S

from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay

SHORT = ("a", "b", "d")
LONG = ("a", "c", "e", "f", "d")
LINKS = {
    ("a", "b"): 10,
    ("b", "d"): 10,
    ("a", "c"): 20,
    ("c", "e"): 1,
    ("e", "f"): 1,
    ("f", "d"): 1,
}


def network(configured: dict[str, float] | None = None) -> OverlayNetwork:
    known = configured or {}
    options = OverlayOptions(ping_us=100 * MS, link_failures=known, node_failures=known)
    overlays = OverlayNetwork(LINKS, options)
    overlays.run(lambda: overlays.nodes["a"].map.is_reachable("a", "d"))
    overlays.run_for(5 * S)
    return overlays


def path(overlays: OverlayNetwork) -> tuple[str, ...]:
    (flow,) = overlays.nodes["a"].routes.flows.values()
    (route,) = flow.usable()
    return route.path


def publish(overlays: OverlayNetwork) -> tuple[str, ...]:
    overlays.publish("a", "d", "orders")
    overlays.run_for(3 * S)
    return path(overlays)


def failure(overlay: Overlay, one: str, other: str) -> float:
    return overlay.map.link_failure(one, other)


def test_a_path_is_chosen_by_what_happened_to_its_links() -> None:
    assert publish(network()) == SHORT
    overlays = network()
    for _ in range(7):  # down for half of 75 seconds, before anything is sent
        overlays.cut("a", "b")
        overlays.run_for(5 * S)
        overlays.join("a", "b", 10)
        overlays.run_for(5 * S)
    assert 0.2 < failure(overlays.nodes["d"], "a", "b") < 0.5
    assert publish(overlays) == LONG


def test_a_flow_leaves_a_link_that_was_measured_to_fail() -> None:
    overlays = network()
    assert publish(overlays) == SHORT
    overlays.nodes["b"].set_measured_failures({"d": 0.25}, {})
    overlays.run(lambda: path(overlays) == LONG, most_s=30)
    assert failure(overlays.nodes["a"], "b", "d") == 0.25
    overlays.nodes["b"].set_measured_failures({"d": 0.0}, {})
    overlays.run(lambda: failure(overlays.nodes["a"], "b", "d") < 0.1, most_s=30)
    assert path(overlays) == LONG  # it stays where it is as long as that is good


def test_a_flow_leaves_a_node_that_was_measured_to_fail() -> None:
    overlays = network()
    assert publish(overlays) == SHORT
    overlays.nodes["a"].set_measured_failures({}, {"b": 0.25, "nobody": 0.5})
    overlays.run(lambda: path(overlays) == LONG, most_s=30)
    assert "nobody" not in overlays.nodes["a"].map.nodes()


def test_a_configured_probability_counts_whatever_was_measured() -> None:
    overlays = network({"b": 0.25})
    assert failure(overlays.nodes["a"], "a", "b") == 0.25
    overlays.nodes["a"].set_measured_failures({"b": 0.0}, {"b": 0.0})
    overlays.run_for(30 * S)
    assert failure(overlays.nodes["a"], "a", "b") == 0.25
    assert overlays.nodes["a"].map.node_failure("b") == 0.25
    assert publish(overlays) == LONG


def test_a_probability_is_a_share() -> None:
    overlays = network()
    with pytest.raises(ValueError, match="node b: failure: expected 0 to 1, got 2"):
        overlays.nodes["a"].set_measured_failures({}, {"b": 2})
