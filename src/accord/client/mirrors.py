"""Mirrored subscriptions: one subscription at several servers, each event delivered once.

No event is missed while at least one of the servers is up. Each server has its own connection,
which reconnects to that server only. An event ID (source node and number) is the same at every
node, so duplicates are recognised. Each server keeps the order that a channel guarantees, and
always the first copy is delivered: the delivered order is therefore that of the server that is
ahead, and all servers have the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from accord.core.model.bounded import LruMap
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import EVENT, NODE

T = TypeVar("T")

# How far servers may be apart, in events; events further behind may be delivered twice.
MAX_EVENT_IDS: Final = 50_000
_MAX_ID_CHARS: Final = 1_000  # characters of an event ID; no node has longer ones


class MirrorDedup:
    """Duplicate filter over event IDs."""

    def __init__(self, most: int = MAX_EVENT_IDS) -> None:
        self._seen: LruMap[tuple[str, str], bool] = LruMap(most)
        self.dropped = 0

    def is_first(self, message: Publish) -> bool:
        """Whether the event is new; an event without ID always is."""
        user = dict(message.properties.user)
        event = user.get(EVENT)
        if event is None:
            return True
        name = (user.get(NODE, ""), event)
        if sum(map(len, name)) > _MAX_ID_CHARS:
            return True  # not stored, so that memory is bounded whatever servers send
        if name in self._seen:
            self.dropped += 1
            return False
        self._seen.put(name, True)
        return True


async def first_of(attempts: Sequence[Awaitable[T]]) -> tuple[T, list[asyncio.Future[T]]]:
    """Return the result of the first attempt to complete, and the others, which continue.

    If the first one to complete raises, the others are cancelled and its exception is raised.
    """
    tasks = [asyncio.ensure_future(each) for each in attempts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(each for each in tasks if each in done)
        result = first.result()
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return result, [each for each in tasks if each is not first]
