"""A node under load that is killed again and again, and what became of its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from accord.core.mqtt.packets import Publish
from accord.journal.segments import UNFINISHED
from tests.scenarios.kills import checks
from tests.scenarios.kills.crew import Crew
from tests.scenarios.kills.node import MortalNode
from tests.scenarios.kills.outcome import Outcome, judge
from tests.scenarios.kills.publishing import RETAINED, Publisher, read_payload
from tests.scenarios.kills.subscribing import Churner, Subscriber

PATIENCE_S: Final = 30.0
RUNNING: Final = "under load"
STARTING: Final = "while starting"
TWICE: Final = "just started"
COMPACTING: Final = "while compacting"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How often the node dies, and when; times are between 0 and these, in seconds."""

    kills: int = 50
    seed: int = 1
    life_s: float = 1.5
    rate_hz: int = 100  # of each publisher
    has_long_lives: bool = True  # long enough that the state log is compacted


class Killing:
    """One run: `node`, its clients, and the seeded choice of when it dies."""

    def __init__(self, plan: Plan, node: MortalNode) -> None:
        self.plan = plan
        self.node = node
        self.kills = {RUNNING: 0, STARTING: 0, TWICE: 0, COMPACTING: 0}
        self.crew = Crew(plan.seed, node.port, plan.rate_hz)
        self.random = Random(plan.seed)  # noqa: S311

    async def run(self, say: Callable[[str], None]) -> Outcome:
        node = self.node
        try:
            node.start()
            await self._begin()
            for number in range(self.plan.kills):
                how = await self._die()
                self.kills[how] += 1
                say(f"kill {number + 1}: {how}")
            await node.wait_until_ready()
            say("alive again: waiting for what is under way")
            problems = await self._drain(say)
            retained = await self._retained()
        finally:
            for client in self.crew.everybody():
                await client.stop()
            code = node.stop()
        if code:
            problems.append(f"exit code {code} when asked to stop")
        return self.judge(retained, problems)

    def judge(self, retained: dict[str, int], problems: list[str]) -> Outcome:
        return judge(self.crew, self.node, self.kills, retained, problems)

    async def _begin(self) -> None:
        """Subscribers first: from then on everything must reach them."""
        for subscriber in self.crew.subscribers:
            subscriber.start()
        await _until(lambda: all(each.is_subscribed for each in self.crew.subscribers))
        for client in self.crew.everybody():
            if not isinstance(client, Subscriber):
                client.start()

    async def _die(self) -> str:
        """Kill the node once, some time in its life, and start it anew."""
        node, random, plan = self.node, self.random, self.plan
        how = random.choices(
            (RUNNING, STARTING, TWICE, COMPACTING), (60, 20, 15, 8 if plan.has_long_lives else 0)
        )[0]
        if how == STARTING:
            usual_s = min(node.start_s, default=1.0)
            await asyncio.sleep(random.uniform(0, usual_s))
        else:
            await node.wait_until_ready()
            if how == COMPACTING:
                await self._until_compacting()
                await asyncio.sleep(random.uniform(0, 0.01))
            else:
                await asyncio.sleep(random.uniform(0, 0.05 if how == TWICE else plan.life_s))
        node.kill()
        node.start()
        return how

    async def _until_compacting(self) -> None:
        """Wait for an unfinished snapshot of the state; not all lives see one."""
        state = self.node.data / "state"
        until_s = time.monotonic() + 13
        while time.monotonic() < until_s:
            if any(path.name.endswith(UNFINISHED) for path in state.glob("*")):
                return
            await asyncio.sleep(0.001)

    async def _drain(self, say: Callable[[str], None]) -> list[str]:
        """Let everybody finish; tells who could not."""
        for publisher in (*self.crew.publishers, *self.crew.retaining):
            publisher.is_done = True
        self.crew.churner.is_done = True
        sources: list[Publisher | Churner] = [
            *self.crew.publishers,
            *self.crew.retaining,
            self.crew.churner,
        ]
        if not await _until(lambda: all(each.is_drained() for each in sources)):
            return [
                f"{each.name}: an answer is missing" for each in sources if not each.is_drained()
            ]
        wanted = checks.acknowledged_of(self.crew.publishers)
        deliveries = -1
        while deliveries < (deliveries := sum(each.deliveries for each in self.crew.subscribers)):
            # As long as something still comes, it is not lost.
            say(f"{deliveries} deliveries")
            await _until(lambda: all(each.has(wanted) for each in self.crew.subscribers), 5.0)
        await asyncio.sleep(0.3)  # so that a repetition would be seen
        return []

    async def _retained(self) -> dict[str, int]:
        """What a newcomer gets of the retained messages."""
        found: dict[str, int] = {}

        class Newcomer(Subscriber):
            def _note(self, packet: Publish) -> None:
                found[packet.topic] = read_payload(packet.payload)[1]

        newcomer = Newcomer("newcomer", self.node.port, patterns=(f"{RETAINED}/#",), qos=1)
        newcomer.start()
        wanted = {
            publisher.channel(number)
            for publisher in self.crew.retaining
            for number in publisher.acknowledged
        }
        await _until(lambda: wanted <= found.keys(), 5.0)
        await newcomer.stop()
        return found


async def _until(is_done: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    until_s = time.monotonic() + patience_s
    while not is_done():
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(0.02)
    return True


def run_kills(plan: Plan, folder: Path, say: Callable[[str], None] = lambda _: None) -> Outcome:
    return asyncio.run(_run(plan, folder, say))


async def _run(plan: Plan, folder: Path, say: Callable[[str], None]) -> Outcome:
    return await Killing(plan, MortalNode(folder)).run(say)
