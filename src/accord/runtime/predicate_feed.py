"""Feeds the data pipeline with the broker's registered predicates and their counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from heapq import nsmallest
from typing import Final

from accord.core.broker.broker import Broker
from accord.core.queries.messages import WatchedPredicate
from accord.runtime.logs import get_log
from accord.runtime.pipeline import Pipeline

log = get_log(__name__)

EVERY_S: Final = 60.0
MAX_PREDICATES: Final = 1_000
_SLICE: Final = 200
_MAX_COUNTED: Final = 100_000
_MAX_LENGTH: Final = 4_096  # longer predicates are not worth the cost of measuring

_Key = tuple[str, str, str]


async def registered_predicates(
    broker: Broker, most: int = MAX_PREDICATES
) -> tuple[WatchedPredicate, ...]:
    """The predicates registered by most clients; scans sessions in slices."""
    clients: Counter[_Key] = Counter()
    number = 0
    for session in list(broker.sessions.values()):
        seen: set[_Key] = set()
        for subscription in list(session.subscriptions.values()):
            if 0 < len(subscription.where) + len(subscription.xpath) <= _MAX_LENGTH:
                seen.add((subscription.pattern, subscription.where, subscription.xpath))
        if len(clients) < _MAX_COUNTED:
            clients.update(seen)
        number += len(session.subscriptions)
        if number >= _SLICE:
            number = 0
            await asyncio.sleep(0)
    return await asyncio.to_thread(_most_used, clients, most)


def _most_used(clients: Counter[_Key], most: int) -> tuple[WatchedPredicate, ...]:
    ranked = nsmallest(most, clients.items(), key=lambda each: (-each[1], each[0]))
    return tuple(WatchedPredicate(*key, count) for key, count in ranked)


async def feed_pipeline(pipeline: Pipeline, broker: Broker) -> None:
    """Pass the registered predicates to the pipeline periodically."""
    while True:
        try:
            pipeline.watch(await registered_predicates(broker))
        except Exception as error:  # otherwise the feed would end for good
            log.failure("the registered predicates could not be listed", error)
        await asyncio.sleep(EVERY_S)
