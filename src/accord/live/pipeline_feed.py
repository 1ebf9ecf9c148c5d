"""What the data pipeline is told of the broker: which predicates are registered, and how often."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from accord.edges.mqtt.broker import Broker
from accord.edges.pipeline.messages import Watched
from accord.live.logs import get_log
from accord.live.pipeline import Pipeline

log = get_log(__name__)

EVERY_S: Final = 60.0
MOST: Final = 1_000
_SLICE: Final = 200
_MOST_COUNTED: Final = 1_000_000

_Key = tuple[str, str, str]


async def watched(broker: Broker, most: int = MOST) -> tuple[Watched, ...]:
    """The predicates that most clients have registered; a slice of sessions at a time."""
    clients: Counter[_Key] = Counter()
    for number, session in enumerate(list(broker.sessions.values())):
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        seen: set[_Key] = set()
        for subscription in list(session.subscriptions.values()):
            if subscription.where or subscription.xpath:
                seen.add((subscription.pattern, subscription.where, subscription.xpath))
        if len(clients) < _MOST_COUNTED:
            clients.update(seen)
    ranked = sorted(clients.items(), key=lambda each: (-each[1], each[0]))
    return tuple(Watched(*key, count) for key, count in ranked[:most])


async def feed(pipeline: Pipeline, broker: Broker) -> None:
    """Hand them over, again and again."""
    while True:
        try:
            pipeline.watch(await watched(broker))
        except Exception as error:  # or they would never be told again
            log.failure("the registered predicates could not be listed", error)
        await asyncio.sleep(EVERY_S)
