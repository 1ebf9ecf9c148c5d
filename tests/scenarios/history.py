"""Subscriptions that begin in the past while events are published, checked number by number."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Final

import accord
from accord.client.session import Session

CHANNEL: Final = "kept/count"
_BURST_S: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Plan:
    runs: int = 100
    seed: int = 1
    rate_hz: int = 500
    at_once: int = 4
    longest_s: float = 20.0  # that a subscription looks back
    live: int = 100  # events after the one that was newest when it began


@dataclass(kw_only=True)
class Outcome:
    """`known` says when which event was received, as far as any run was told."""

    runs: int = 0
    published: int = 0
    received: int = 0
    past: int = 0
    gaps: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    known: dict[int, int] = field(default_factory=dict)
    begins: list[tuple[int, int, int]] = field(default_factory=list)  # run, since, first number

    def failures(self) -> list[str]:
        return [*self.gaps, *self.duplicates, *self._late_begins()]

    def _late_begins(self) -> list[str]:
        """Runs that began behind an event they should have had, as others know its time."""
        return [
            f"run {run} began with {first}, but {first - 1} was received in its time"
            for run, since_ms, first in self.begins
            if self.known.get(first - 1, 0) >= since_ms
        ]


async def run_history(url: str, plan: Plan) -> Outcome:
    outcome = Outcome()
    chance = random.Random(plan.seed)  # noqa: S311
    async with accord.connect(url) as session:
        publishing = asyncio.create_task(_publish(session, plan, outcome))
        try:
            await asyncio.sleep(1.0)
            gate = asyncio.Semaphore(plan.at_once)

            async def run(number: int, seed: float) -> None:
                async with gate:
                    await _run(url, number, random.Random(seed), plan, outcome)  # noqa: S311

            seeds = [chance.random() for _ in range(plan.runs)]
            await asyncio.gather(*(run(number, seed) for number, seed in enumerate(seeds)))
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
    return outcome


async def _publish(session: Session, plan: Plan, outcome: Outcome) -> None:
    """Numbers, in order; all of a burst are under way at once."""
    due_s = time.monotonic()
    while True:
        burst = max(1, round(plan.rate_hz * _BURST_S))
        numbers = range(outcome.published, outcome.published + burst)
        await asyncio.gather(*(session.publish(CHANNEL, str(number)) for number in numbers))
        outcome.published += burst
        due_s += _BURST_S
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def _run(url: str, number: int, chance: random.Random, plan: Plan, outcome: Outcome) -> None:
    await asyncio.sleep(chance.uniform(0, 1))  # the moment of the cut
    since_s = chance.uniform(0.1, plan.longest_s)
    pauses = chance.choice([0.0, 0.0, 0.001])  # some are slow
    last, until = -1, outcome.published + plan.live
    async with (
        accord.connect(url) as session,
        session.subscribe(CHANNEL, since=f"-{round(since_s * 1000)}ms") as events,
    ):
        # The node read `since` before this.
        since_ms = time.time_ns() // 1_000_000 - round(since_s * 1000)
        async for event in events:
            got = int(event.payload)
            outcome.received += 1
            if event.is_kept:
                outcome.past += 1
                outcome.known[got] = event.received_ms
            if last < 0:
                outcome.begins.append((number, since_ms, got))
            elif got <= last:
                outcome.duplicates.append(f"run {number}: {got} behind {last}")
            elif got > last + 1:
                outcome.gaps.append(f"run {number}: {last} is followed by {got}")
            last = max(last, got)
            if last >= until:
                break
            if pauses and chance.random() < 0.2:
                await asyncio.sleep(pauses)
    outcome.runs += 1
