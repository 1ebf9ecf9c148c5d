"""A client that behaves: it must be served, whatever others do."""

from __future__ import annotations

import asyncio
from typing import Final

import accord
from tests.brokers import HOST
from tests.scenarios.fuzzing.node import FuzzedNode

PATIENCE_S: Final = 20.0


async def check_round_trips(node: FuzzedNode) -> None:
    """A message of each QoS goes there and back, over TCP and over WebSocket."""
    for url in (f"mqtt://{HOST}:{node.port}", f"ws://{HOST}:{node.websocket_port}/mqtt"):
        async with (
            asyncio.timeout(PATIENCE_S),
            accord.connect(url) as session,
            session.subscribe("healthy/+", qos=2, where="level >= 0") as events,
        ):
            for qos in (0, 1, 2):
                await session.publish(f"healthy/{qos}", b"well?", qos=qos, level=qos)
                event = await anext(events)
                assert event.channel == f"healthy/{qos}", event
