"""One subscription at several servers at the same time: what all of them send, each event once.

While one of the servers is there nothing is missed, whichever of the others fails. Each has a
connection of its own that stays with it and comes back to it. Nodes name events alike wherever
they are received, by the node where each was published and its number there, so copies are known.
Each server keeps to the order that a channel promises, and what is taken is always the first copy:
so the order of what is taken is that of whoever is ahead, which is the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from accord.core.model.lru import LruMap
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.reserved_properties import EVENT, NODE

T = TypeVar("T")

# How far servers may be apart, in events; what is further behind may come again.
MAX_NAMES: Final = 50_000
_LONGEST: Final = 1_000  # characters of a name; no node has longer ones


class MirrorDedup:
    """Which events have come."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._known: LruMap[tuple[str, str], bool] = LruMap(most)
        self.dropped = 0

    def is_first(self, message: Publish) -> bool:
        """What has no name counts as the first of its kind."""
        user = dict(message.properties.user)
        event = user.get(EVENT)
        if event is None:
            return True
        name = (user.get(NODE, ""), event)
        if sum(map(len, name)) > _LONGEST:
            return True  # so that what is remembered is bounded, whatever servers say
        if name in self._known:
            self.dropped += 1
            return False
        self._known.put(name, True)
        return True


async def first_of(attempts: Sequence[Awaitable[T]]) -> tuple[T, list[asyncio.Future[T]]]:
    """What the first gives that succeeds, and the others, which go on; raises what the first does.

    Where one raises before any has succeeded, all others end.
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
