"""A large network for the map of the console: all its links change ten times a second."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from accord.core.overlay.status import IN_USE

NODES: Final = 500
LINKS: Final = 2_000
CHANNELS: Final = 50
PERIOD_S: Final = 0.1
_SEED: Final = 5
_MAP: Final = "[role=application]"
_FRAMES: Final = "(map) => map.accordMap().frames"


class LargeNetwork:
    """What a node would send of it: the state, and differences in which everything moves."""

    def __init__(self) -> None:
        self._random = Random(_SEED)
        self._names = [f"node-{number:03}" for number in range(NODES)]
        self._links = self._make_links()
        self._paths = [self._walk() for _ in range(2 * CHANNELS)]

    def state(self) -> dict[str, Any]:
        links: dict[str, dict[str, Any]] = {}
        for one, other in self._links:
            for source, target in ((one, other), (other, one)):
                links.setdefault(source, {})[target] = {"latency_us": self._latency_us()}
        nodes = {
            name: {"location": [20 + 35 * self._random.random(), -125 + 58 * self._random.random()]}
            for name in self._names
        }
        return {
            "node": self._names[0],
            "left_out": 0,
            "nodes": nodes,
            "links": links,
            "flows": {self._names[0]: {str(each): self._flow(each) for each in range(CHANNELS)}},
            "arrivals": {},
        }

    def patch(self) -> dict[str, Any]:
        """One direction of every link, and the delays of every flow."""
        links: dict[str, dict[str, Any]] = {}
        for source, target in self._links:
            links.setdefault(source, {})[target] = {"latency_us": self._latency_us()}
        flows = {
            str(each): {
                "routes": self._flow(each)["routes"],
                "changes": self._random.getrandbits(16),
            }
            for each in range(CHANNELS)
        }
        return {"links": links, "flows": {self._names[0]: flows}}

    def _make_links(self) -> list[tuple[str, str]]:
        """A ring, so that all are linked, and links at random."""
        found = {(one, other) for one, other in zip(self._names, self._names[1:], strict=False)}
        found.add((self._names[0], self._names[-1]))
        while len(found) < LINKS:
            one, other = sorted(self._random.sample(self._names, 2))
            found.add((one, other))
        return sorted(found)

    def _walk(self) -> list[str]:
        """A path of five hops."""
        neighbours: dict[str, list[str]] = {}
        for one, other in self._links:
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
        path = [self._random.choice(self._names)]
        while len(path) <= 5:
            path.append(self._random.choice(neighbours[path[-1]]))
        return path

    def _flow(self, number: int) -> dict[str, Any]:
        paths = self._paths[2 * number : 2 * number + 2]
        return {
            "source": paths[0][0],
            "destination": paths[0][-1],
            "max_delay_us": 250_000,
            "paths": 2,
            "resiliency": 0.0,
            "reached": 0.999,
            "is_met": True,
            "changes": 0,
            "channels": [f"load/{number:02}"],
            "has_more": False,
            "routes": [
                {"path": path, "delay_us": self._latency_us(), "state": IN_USE} for path in paths
            ],
        }

    def _latency_us(self) -> int:
        return 10_000 + self._random.randrange(5_000)


def open_map(page: Any) -> Callable[[float], None]:
    """Show it in place of the node's own network; returns what keeps it changing for a while."""
    made = LargeNetwork()
    watching: list[tuple[Any, int]] = []

    def take(route: Any) -> None:
        server = route.connect_to_server()

        def on_message(text: str) -> None:
            asked = json.loads(text)
            if asked.get("set") != "net":
                server.send(text)
                return
            _send(route, asked["watch"], "state", made.state())
            watching[:] = [(route, asked["watch"])]

        route.on_message(on_message)

    empty: dict[str, Any] = {"nodes": {}, "links": {}, "flows": {}, "arrivals": {}}
    now_ms = round(time.time() * 1_000)
    history = {
        "node": "node-000", "from_ms": now_ms, "at_ms": now_ms, "after": 0, "has_more": False,
        "steps": [], "rows": empty,
    }  # fmt: skip
    page.route_web_socket("**/api/v1/live", take)
    page.route("**/api/v1/net/history*", lambda route: route.fulfill(json=history))
    page.goto("/network")
    page.wait_for_selector(_MAP)

    def wait(seconds: float) -> None:
        end = due = time.monotonic() + PERIOD_S
        end += seconds
        while time.monotonic() < end:
            for route, watch in watching:
                _send(route, watch, "patch", made.patch())
            page.wait_for_timeout(max(1.0, 1_000 * (due - time.monotonic())))
            due = max(due + PERIOD_S, time.monotonic())

    return wait


def map_frames_hz(page: Any, wait: Callable[[float], None], seconds: float) -> float:
    """How often the map is drawn in a second, meanwhile."""
    chart = page.locator(_MAP)
    before, begun = chart.evaluate(_FRAMES), time.monotonic()
    wait(seconds)
    span = time.monotonic() - begun
    found = (chart.evaluate(_FRAMES) - before) / span
    return float(found) if math.isfinite(found) else 0.0


def _send(route: Any, watch: int, member: str, value: dict[str, Any]) -> None:
    at_ms = round(time.time() * 1_000)
    route.send(json.dumps({"id": watch, "at_ms": at_ms, member: value}))
