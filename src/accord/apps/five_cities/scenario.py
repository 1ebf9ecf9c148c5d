"""Runs the scenario: publishers in Seattle, a subscriber in each of the other two cities.

All are MQTT clients, connected while the network changes. Nothing counts before every channel has
all its paths and an event of each has arrived: until then a node cannot know the interests of the
others.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Protocol

from accord.apps.five_cities.cities import CHANNELS, PAYLOAD_BYTES, RATE_HZ, SOURCE, CityChannel
from accord.apps.five_cities.phases import (
    ChannelLatencies,
    ChannelPhase,
    CityFlow,
    CityPhase,
    CityPhasePlan,
    Kind,
)
from accord.client.session import Session, connect
from accord.client.subscription import Subscription
from accord.client.transport import Transport

POLL_S: Final = 0.03  # between two samples of the paths
SELDOM_S: Final = 0.25  # the same, once the phase is this old:
OFTEN_S: Final = 3.0
PROBE_S: Final = 0.05
AFTERWARDS_S: Final = 15.0  # timeout for the next event, after which missing ones count as lost
TWICE_S: Final = 0.5  # for duplicates that might still arrive
UNACKNOWLEDGED: Final = 2 * RATE_HZ
_HEAD: Final = struct.Struct(">i")
_PROBE: Final = -1


class FiveCitiesNetwork(Protocol):
    """The network and the faults that can be injected into it."""

    async def flows(self) -> Mapping[str, CityFlow]:
        """Flows by channel, as the node in Seattle has them."""

    async def inject(self, kind: Kind) -> None: ...


class FiveCitiesScenario:
    """Runs the phases of the scenario.

    `urls` are the addresses for clients, by city; `on_phase_end` is called when a phase is over.
    """

    def __init__(  # noqa: PLR0913
        self,
        urls: Mapping[str, str],
        network: FiveCitiesNetwork,
        *,
        paths: int,
        on_phase_start: Callable[[CityPhasePlan], None],
        on_phase_end: Callable[[CityPhase], None],
        channels: Sequence[CityChannel] = CHANNELS,
        transport: Transport | None = None,
    ) -> None:
        self.meters = {channel.name: ChannelLatencies(channel) for channel in channels}
        self.phases: list[CityPhase] = []
        self._urls = urls
        self._network = network
        self._paths = paths
        self._transport = transport
        self._on_phase_start = on_phase_start
        self._on_phase_end = on_phase_end
        self._probed = {channel.name: asyncio.Event() for channel in channels}
        self._arrived = asyncio.Event()
        self._allowed = asyncio.Semaphore(UNACKNOWLEDGED)
        self._is_over = False

    @property
    def is_flawless(self) -> bool:
        """Whether nothing was lost or duplicated."""
        return not any(meter.lost or meter.duplicates for meter in self.meters.values())

    async def run(self, acts: Sequence[CityPhasePlan], seconds: Sequence[float]) -> None:
        """Run each act for so many seconds; raises the first problem of any client."""
        try:
            await self._run(acts, seconds)
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _run(self, acts: Sequence[CityPhasePlan], seconds: Sequence[float]) -> None:
        async with AsyncExitStack() as stack:
            publishers = {}
            subscriptions = []
            for meter in self.meters.values():
                publishers[meter] = await stack.enter_async_context(self._connect(SOURCE))
                session = await stack.enter_async_context(self._connect(meter.channel.destination))
                subscriptions.append(
                    await stack.enter_async_context(
                        session.subscribe(meter.channel.name, qos=1, queue=10_000)
                    )
                )
            async with asyncio.TaskGroup() as group:
                receiving = [group.create_task(self._receive(each)) for each in subscriptions]
                for meter, session in publishers.items():
                    await self._probe(meter, session)
                await self._wait_for_paths()
                publishing = [
                    group.create_task(self._publish(meter, session))
                    for meter, session in publishers.items()
                ]
                before: Mapping[str, CityFlow] = {}
                for act, lasting_s in zip(acts, seconds, strict=True):
                    before = await self._run_phase(act, lasting_s, before)
                self._is_over = True
                await asyncio.gather(*publishing)
                await self._wait_for_events()
                for task in receiving:
                    task.cancel()

    def _connect(self, city: str) -> AbstractAsyncContextManager[Session]:
        return connect(self._urls[city], session_expiry_s=0, transport=self._transport)

    async def _run_phase(
        self, act: CityPhasePlan, seconds: float, before: Mapping[str, CityFlow]
    ) -> Mapping[str, CityFlow]:
        self._on_phase_start(act)
        began_s = time.monotonic()
        await self._network.inject(act.kind)
        flows, settled_s = before, dict.fromkeys(self.meters, 0.0)
        while (left_s := began_s + seconds - time.monotonic()) > 0:
            seen = await self._network.flows()
            for name in self.meters:
                if name not in flows or set(seen[name].paths) != set(flows[name].paths):
                    settled_s[name] = time.monotonic() - began_s
            flows = seen
            is_new = seconds - left_s < OFTEN_S
            await asyncio.sleep(min(POLL_S if is_new else SELDOM_S, left_s))
        until_s = time.monotonic()
        phase = CityPhase(act, until_s - began_s)
        for name, meter in self.meters.items():
            line = ChannelPhase(
                meter.channel,
                before.get(name, CityFlow(())),
                flows[name],
                settled_s[name],
                meter.measure(began_s, until_s),
            )
            phase.channels.append(line)
        self.phases.append(phase)
        self._on_phase_end(phase)
        return flows

    async def _probe(self, meter: ChannelLatencies, session: Session) -> None:
        """Publish until an event arrives: then the nodes know the interests."""
        probed = self._probed[meter.channel.name]
        while not probed.is_set():
            await session.publish(meter.channel.name, _payload(_PROBE), qos=1)
            try:
                await asyncio.wait_for(probed.wait(), PROBE_S)
            except TimeoutError:
                continue

    async def _wait_for_paths(self) -> None:
        """Wait until each channel has all its paths."""
        while True:
            flows = await self._network.flows()
            if all(name in flows and len(flows[name].paths) == self._paths for name in self.meters):
                return
            await asyncio.sleep(POLL_S)

    async def _publish(self, meter: ChannelLatencies, session: Session) -> None:
        """Publish at the fixed rate, however long single acknowledgements take."""
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while not self._is_over:
                due_s = started_s + meter.published / RATE_HZ
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await self._allowed.acquire()
                number = meter.publish(time.monotonic())
                publishing = session.publish(meter.channel.name, _payload(number), qos=1)
                group.create_task(publishing).add_done_callback(self._on_ack)

    def _on_ack(self, _: object) -> None:
        self._allowed.release()

    async def _receive(self, subscription: Subscription) -> None:
        async for event in subscription:
            (number,) = _HEAD.unpack_from(event.payload)
            if number == _PROBE:
                self._probed[event.channel].set()
            else:
                self.meters[event.channel].receive(number, time.monotonic())
                self._arrived.set()

    async def _wait_for_events(self) -> None:
        while any(meter.lost for meter in self.meters.values()):
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), AFTERWARDS_S)
            except TimeoutError:
                return
        await asyncio.sleep(TWICE_S)


def _payload(number: int) -> bytes:
    return _HEAD.pack(number).ljust(PAYLOAD_BYTES, b".")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
