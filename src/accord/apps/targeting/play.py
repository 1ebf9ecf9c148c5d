"""Runs the story: every source is an MQTT client of its own, and so is the display."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Protocol

from accord.apps.targeting.cast import CHANNELS, RECEIVER, Source
from accord.apps.targeting.meters import Fate, Meters
from accord.apps.targeting.story import Act, Change
from accord.client.session import Session, connect
from accord.client.subscription import Subscription
from accord.client.transport import Transport

TICK_S: Final = 1.0
# After the last act, for what is still on its way; deadlines are 15 s at most.
AFTERWARDS_S: Final = 3.0
# The ledger is written a moment after things have happened.
_OVERLAP_MS: Final = 5_000


class Stage(Protocol):
    """The node that everything happens on, as its administrator sees it."""

    async def change(self, change: Change) -> None:
        """Ask the node's API for policies; an error where the node says no."""

    async def fates(self, since_ms: int) -> Sequence[Fate]:
        """What the ledger knows since then."""


class Play:
    """`on_tick` is called about once a second, `on_act` when an act is over."""

    def __init__(  # noqa: PLR0913
        self,
        url: str,
        stage: Stage,
        sources: Sequence[Source],
        *,
        on_tick: Callable[[Act, Meters], None],
        on_act: Callable[[Act, Meters], None],
        transport: Transport | None = None,
    ) -> None:
        self.meters = Meters(sources)
        self._url = url
        self._stage = stage
        self._sources = sources
        self._on_tick = on_tick
        self._on_act = on_act
        self._transport = transport
        self._learned_ms = 0

    async def run(self, acts: Sequence[Act], seconds: float) -> None:
        async with AsyncExitStack() as stack:
            display = await stack.enter_async_context(self._connect(RECEIVER))
            subscriptions = [
                await stack.enter_async_context(display.subscribe(channel, qos=1))
                for channel in CHANNELS
            ]
            sessions = {
                client: await stack.enter_async_context(self._connect(client))
                for client in dict.fromkeys(source.client for source in self._sources)
            }
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._display(each)) for each in subscriptions]
                await self._act(acts[0])
                publishers = [
                    group.create_task(self._publish(sessions[source.client], source))
                    for source in self._sources
                ]
                for number, act in enumerate(acts):
                    if number:
                        await self._act(act)
                    await self._watch(act, seconds)
                    self._on_act(act, self.meters)
                self.meters.finish()
                for each in publishers:
                    each.cancel()
                await asyncio.sleep(min(AFTERWARDS_S, seconds))
                await self._learn()
                for each in tasks:
                    each.cancel()

    def _connect(self, client: str) -> AbstractAsyncContextManager[Session]:
        return connect(self._url, client_id=client, session_expiry_s=0, transport=self._transport)

    async def _act(self, act: Act) -> None:
        for change in act.changes:
            await self._stage.change(change)
        now_ms = time.time_ns() // 1_000_000
        self._learned_ms = self._learned_ms or now_ms
        self.meters.begin(act.name, now_ms=now_ms, now_s=time.monotonic())

    async def _watch(self, act: Act, seconds: float) -> None:
        """Look at it every second until the act is over."""
        started = before = time.monotonic()
        end = started + seconds
        while (now := time.monotonic()) < end:
            await asyncio.sleep(min(TICK_S, end - now))
            now = time.monotonic()
            await self._learn()
            self.meters.tick(max(now - before, 1e-3))
            before = now
            self._on_tick(act, self.meters)

    async def _learn(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.meters.learn(await self._stage.fates(self._learned_ms - _OVERLAP_MS))
        self._learned_ms = now_ms

    async def _publish(self, session: Session, source: Source) -> None:
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

    async def _display(self, subscription: Subscription) -> None:
        async for event in subscription:
            source, number = event.attributes.get("source"), event.attributes.get("number")
            key = (event.channel, str(source))
            if key in self.meters.rates and isinstance(number, int):
                self.meters.received(key, number, len(event.payload), time.monotonic())
