"""Runs a scenario: every source is an MQTT client of its own, and so is the receiver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final

from accord.apps.demonstrations.meters import LOSSES, Meters
from accord.apps.demonstrations.scenario import DemoScenario, DemoSource, PhasePlan
from accord.apps.node_process import NodeCaller
from accord.client.session import Session, connect
from accord.client.subscription import Subscription
from accord.client.transport import Transport
from accord.operations.status import ListOutcomes

TICK_S: Final = 1.0
# After the last phase, for events in transit; deadlines are 15 s at most.
DRAIN_S: Final = 3.0
# The ledger is written a moment after an outcome is known.
_OVERLAP_MS: Final = 5_000
_MAX_OUTCOMES: Final = 1_000
_COUNTED: Final = {*LOSSES, "delivered", "late", "shaped"}


class ScenarioRunner:
    """Runs the phases of a scenario; `node` is the node as its administrator reaches it.

    `on_tick` is called about once a second, `on_phase_end` when a phase is over.
    """

    def __init__(  # noqa: PLR0913
        self,
        url: str,
        node: NodeCaller,
        scenario: DemoScenario,
        sources: Sequence[DemoSource],
        *,
        on_tick: Callable[[PhasePlan, Meters], None],
        on_phase_end: Callable[[PhasePlan, Meters], None],
        transport: Transport | None = None,
    ) -> None:
        self.meters = Meters(scenario.channels, sources)
        self._url = url
        self._node = node
        self._scenario = scenario
        self._sources = sources
        self._on_tick = on_tick
        self._on_phase_end = on_phase_end
        self._transport = transport
        self._fetched_ms = 0

    async def run(self, seconds: float) -> None:
        """Run all phases, `seconds` each."""
        phases = self._scenario.phases
        async with AsyncExitStack() as stack:
            receiver = await stack.enter_async_context(self._connect(self._scenario.receiver))
            subscriptions = [
                await stack.enter_async_context(receiver.subscribe(channel, qos=1))
                for channel in self._scenario.channels
            ]
            sessions = {
                client: await stack.enter_async_context(self._connect(client))
                for client in dict.fromkeys(source.client for source in self._sources)
            }
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._receive(each)) for each in subscriptions]
                await self._begin(phases[0])
                publishers = [
                    group.create_task(self._publish(sessions[source.client], source))
                    for source in self._sources
                ]
                for number, phase in enumerate(phases):
                    if number:
                        await self._begin(phase)
                    await self._watch(phase, seconds)
                    self._on_phase_end(phase, self.meters)
                self.meters.finish()
                for each in publishers:
                    each.cancel()
                await asyncio.sleep(min(DRAIN_S, seconds))
                await self._fetch_outcomes()
                for each in tasks:
                    each.cancel()

    def _connect(self, client: str) -> AbstractAsyncContextManager[Session]:
        return connect(self._url, client_id=client, session_expiry_s=0, transport=self._transport)

    async def _begin(self, phase: PhasePlan) -> None:
        for change in phase.changes:
            await asyncio.to_thread(self._node.call, change)
        now_ms = time.time_ns() // 1_000_000
        self._fetched_ms = self._fetched_ms or now_ms
        self.meters.begin(phase.name, now_ms=now_ms, now_s=time.monotonic())

    async def _watch(self, phase: PhasePlan, seconds: float) -> None:
        """Sample the meters every second until the phase is over."""
        started = before = time.monotonic()
        end = started + seconds
        while (now := time.monotonic()) < end:
            await asyncio.sleep(min(TICK_S, end - now))
            now = time.monotonic()
            await self._fetch_outcomes()
            self.meters.tick(max(now - before, 1e-3))
            before = now
            self._on_tick(phase, self.meters)

    async def _fetch_outcomes(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        since_ms = max(self._fetched_ms - _OVERLAP_MS, 0)
        asked = ListOutcomes(since_ms=since_ms, limit=_MAX_OUTCOMES)
        found = (await asyncio.to_thread(self._node.call, asked)).outcomes
        self.meters.add_outcomes(each for each in found if each.outcome in _COUNTED)
        self._fetched_ms = now_ms

    async def _publish(self, session: Session, source: DemoSource) -> None:
        key = (source.channel, source.client)
        started = time.monotonic() + source.offset_s
        number = 0
        while True:
            due = started + number * source.period_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sample = source.sample(number)
            self.meters.published(key, number, len(sample.payload), time.monotonic())
            await session.publish(
                source.channel,
                sample.payload,
                qos=1,
                key=sample.key,
                attributes={**sample.attributes, "source": source.client, "number": number},
            )
            number += 1

    async def _receive(self, subscription: Subscription) -> None:
        async for event in subscription:
            source, number = event.attributes.get("source"), event.attributes.get("number")
            key = (event.channel, str(source))
            if key in self.meters.rates and isinstance(number, int):
                self.meters.received(key, number, len(event.payload), time.monotonic())
