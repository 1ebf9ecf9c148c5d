"""Five nodes as processes, linked by relays that delay, and the faults of the scenario."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Final, Self

from accord.apps.five_cities.cities import (
    CHANNELS,
    CITIES,
    DENVER,
    JITTER_MS,
    LINKS,
    SLOW_LINK,
    SLOW_MS,
    SOURCE,
    Pair,
    city_text,
    configuration,
    stretched,
)
from accord.apps.five_cities.phases import CityFlow, Kind
from accord.apps.five_cities.relays import Relay
from accord.apps.node_process import NodeProcess, NodeProcessError
from accord.client.http import HttpClient
from accord.core.overlay.status import SETTING_UP, FlowStatus, NetStatus
from accord.operations.channels import GetNet

LINKED_S: Final = 30.0  # until all nodes know all links
MEASURED_S: Final = 5.0  # additional time for accurate latencies
_POLL_S: Final = 0.05
_CLOSE_MS: Final = 5


class FiveCities:
    """Runs from `async with` on; faults are permanent."""

    def __init__(
        self,
        *,
        paths: int = 2,
        ping_ms: int = 100,
        seed: int = 5,
        stretch: float = 1.0,
    ) -> None:
        self.nodes: dict[str, NodeProcess] = {}
        self.channels = [stretched(channel, stretch) for channel in CHANNELS]
        self.paths = paths
        self._ping_ms = round(ping_ms * stretch)
        self.stretch = stretch
        self._random = random.Random(seed)  # noqa: S311 - it makes links vary
        self._relays: dict[Pair, Relay] = {}
        self._stack = AsyncExitStack()
        self._source: HttpClient | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    @property
    def urls(self) -> dict[str, str]:
        return {city: node.mqtt_url for city, node in self.nodes.items()}

    async def inject(self, kind: Kind) -> None:
        relay = self._relays[SLOW_LINK]
        match kind:
            case "slow":
                relay.slow_down(SLOW_MS * self.stretch)
            case "cut":
                relay.cut()
            case "silent":
                relay.silence()
            case "kill":
                self.nodes[DENVER].kill()
            case "nothing":
                pass

    async def flows(self) -> Mapping[str, CityFlow]:
        """Flows of the scenario's channels, by name."""
        found = {}
        status = await self._status()
        for channel in CHANNELS:
            for flow in status.flows:
                if flow.source == SOURCE and channel.name in flow.channels:
                    found[channel.name] = _flow(flow)
        return found

    async def _start(self) -> None:
        for pair, delay_ms in LINKS.items():
            relay = Relay(delay_ms * self.stretch, jitter_ms=JITTER_MS, random=self._random.random)
            await relay.start()
            self._stack.push_async_callback(relay.close)
            self._relays[pair] = relay
        self._stack.push_async_callback(self._stop_nodes)
        outcomes = await asyncio.gather(*map(self._start_node, CITIES), return_exceptions=True)
        for error in outcomes:
            if error is not None:
                raise error
        self._source = HttpClient(self.nodes[SOURCE].http_url)
        await self._wait_for_links()

    async def _start_node(self, city: str) -> None:
        dials = [relay.port for (one, _), relay in self._relays.items() if one == city]
        text = configuration(city, dials, self.channels, ping_ms=self._ping_ms, paths=self.paths)
        node = self.nodes[city] = NodeProcess(text)
        await asyncio.to_thread(node.wait_ready)
        for (_, other), relay in self._relays.items():
            if other == city:
                relay.set_target(node.links_port)

    async def _stop_nodes(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes.values()))

    async def _wait_for_links(self) -> None:
        """Wait until every link is measured: earlier routes depend on the order of start."""
        missing = ""
        try:
            async with asyncio.timeout(LINKED_S):
                while missing := self._missing(await self._status()):
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise NodeProcessError(f"the nodes do not find each other: {missing}") from None
        with suppress(TimeoutError):  # a busy machine may never get there
            async with asyncio.timeout(MEASURED_S):
                while self._missing(await self._status(), _CLOSE_MS):
                    await asyncio.sleep(_POLL_S)

    async def _status(self) -> NetStatus:
        assert self._source is not None
        return await asyncio.to_thread(self._source.call, GetNet())

    def _missing(self, status: NetStatus, close_ms: float = math.inf) -> str:
        """Links that are not used, or not measured that accurately; empty if none."""
        known = {
            (link.source, link.target): link.latency_us / 1_000
            for link in status.links
            if link.is_used
        }
        wrong = [
            f"{city_text(one)}–{city_text(other)}"
            for (one, other), delay_ms in LINKS.items()
            for pair in ((one, other), (other, one))
            if not 0 <= known.get(pair, -1.0) <= delay_ms * self.stretch + close_ms
        ]
        return ", ".join(dict.fromkeys(wrong))


def _flow(flow: FlowStatus) -> CityFlow:
    """Routes that carry events."""
    routes = [each for each in flow.routes if each.state != SETTING_UP]
    return CityFlow(
        tuple(each.path for each in routes),
        tuple(each.delay_us / 1_000 for each in routes),
        flow.is_met,
    )
