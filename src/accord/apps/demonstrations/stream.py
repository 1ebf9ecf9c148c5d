"""The stream that a node publishes by default, so that there is data right after it has started.

Feeders and transformers of three substations are measured, crews drive to faults, and a call centre
reports outages, with XML metadata: five events a second. The stream is a function of its seed and
of how often it was read; `run_demo` publishes it as any client would, and subscribes to a part of
it as a dispatcher, so that deliveries can be watched.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from accord.apps.demonstrations.equipment import CAUSES, CREWS, FEEDERS, TRANSFORMERS
from accord.client.errors import ClientError
from accord.client.session import Session, connect
from accord.client.subscription import Subscription
from accord.client.transport import Transport
from accord.core.model.values import Value

SEED: Final = 5
PERIOD_S: Final = 0.2
GRID: Final = "demo-grid"
DISPATCHER: Final = "demo-dispatcher"
DEADLINE_MS: Final = 15_000  # of measurements and positions, which are superseded by then


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """An event of the stream, to be published."""

    channel: str
    attributes: dict[str, Value]
    payload: str = ""
    metadata: str | None = None
    key: str | None = None
    deadline_ms: int | None = None
    qos: int = 0


class DemoStream:
    """An endless stream: each second three feeders, a transformer or a crew, and an outage."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a demonstration has no secrets
        self._events = self._stream()

    def __iter__(self) -> Iterator[StreamEvent]:
        return self._events

    def _stream(self) -> Iterator[StreamEvent]:
        for second in count(1):
            for feeder in FEEDERS:
                yield _latest("feeder", feeder.name, feeder.measure(second, self._noise()))
            number = second // 2
            if second % 2:
                transformer = TRANSFORMERS[number % len(TRANSFORMERS)]
                measured = transformer.measure(second, self._noise())
                yield _latest("transformer", transformer.name, measured)
            else:
                crew = CREWS[number % len(CREWS)]
                yield _latest("crew", crew.name, crew.locate(second, self._noise()))
            yield self._outage(second)

    def _noise(self) -> float:
        return self._random.uniform(-1, 1)

    def _outage(self, number: int) -> StreamEvent:
        feeder = self._random.choice(FEEDERS)
        cause, text = self._random.choice(CAUSES)
        customers = self._random.randint(1, 900)
        priority = "urgent" if customers > 600 else "normal"
        affected = f'<customers cause="{cause}">{customers}</customers>'
        return StreamEvent(
            channel="demo/outage",
            attributes={
                "feeder": feeder.name,
                "cause": cause,
                "customers": customers,
                "priority": priority,
                "substation": feeder.substation,
            },
            payload=f"{feeder.name}: {text}, {customers} customers without supply",
            metadata=f'<outage number="{number}">{affected}</outage>',
            qos=1,
        )


def _latest(kind: str, name: str, attributes: dict[str, Value]) -> StreamEvent:
    """A value of which only the latest counts."""
    return StreamEvent(
        channel=f"demo/{kind}/{name}", attributes=attributes, key=name, deadline_ms=DEADLINE_MS
    )


async def run_demo(
    url: str,
    *,
    seed: int = SEED,
    transport: Transport | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Publish the stream until cancelled; return if the server refuses it."""
    try:
        async with (
            connect(
                url, transport=transport, session_expiry_s=0, client_id=DISPATCHER
            ) as dispatcher,
            dispatcher.subscribe("demo/outage") as outages,
            dispatcher.subscribe("demo/crew/+") as crews,
            dispatcher.subscribe("demo/feeder/+", where="load_mw > 4") as loads,
            connect(url, transport=transport, session_expiry_s=0, client_id=GRID) as session,
            asyncio.TaskGroup() as tasks,
        ):
            readers = [tasks.create_task(_read(each)) for each in (outages, crews, loads)]
            try:
                for event in DemoStream(seed):
                    await _publish(session, event)
                    await sleep(PERIOD_S)
            finally:
                for reader in readers:
                    reader.cancel()
    except* ClientError:
        pass


async def _read(events: Subscription) -> None:
    async for _ in events:
        pass


async def _publish(session: Session, event: StreamEvent) -> None:
    await session.publish(
        event.channel,
        event.payload,
        qos=event.qos,
        key=event.key,
        deadline_ms=event.deadline_ms,
        metadata=event.metadata,
        attributes=event.attributes,
    )
