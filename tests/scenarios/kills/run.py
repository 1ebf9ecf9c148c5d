"""A node under load that is killed again and again, and what became of its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from accord.edges.mqtt.codes import V5, V311
from accord.edges.mqtt.packets import Publish
from accord.journal.segments import UNFINISHED
from tests.scenarios.kills import checks
from tests.scenarios.kills.clients import Client
from tests.scenarios.kills.node import MortalNode
from tests.scenarios.kills.publishing import KEPT, OTHER, RETAINED, Publisher, read_payload
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
    has_long_lives: bool = True  # long enough that the state log is compacted


class Outcome(msgspec.Struct):
    """Figures, and everything that is wrong."""

    kills: dict[str, int]
    starts: int = 0
    slowest_start_s: float = 0.0
    reconnects: int = 0
    published: int = 0
    acknowledged: int = 0
    refused: int = 0
    resent: int = 0
    kept: int = 0
    events: int = 0
    kept_again: int = 0
    kept_again_at_qos_2: int = 0
    deliveries: int = 0
    delivered_again: int = 0
    churn_rounds: int = 0
    lost_events: list[str] = []
    lost_messages: list[str] = []
    repeated: list[str] = []
    disordered: list[str] = []
    unretained: list[str] = []
    problems: list[str] = []

    def failures(self) -> list[str]:
        return [
            *self.lost_events,
            *self.lost_messages,
            *self.repeated,
            *self.disordered,
            *self.unretained,
            *self.problems,
        ]


class Killing:
    """One run: `node`, its clients, and the seeded choice of when it dies."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.node = MortalNode(folder)
        self.kills = {RUNNING: 0, STARTING: 0, TWICE: 0, COMPACTING: 0}
        self._random = Random(plan.seed)  # noqa: S311
        port = self.node.port
        self.publishers = [
            self._publisher("p1", 1),
            self._publisher("p2", 2),
            self._publisher("p3", 2, rate_hz=200),
            self._publisher("p4", 1, version=V311),
            self._publisher("p5", 2, version=V311),
        ]
        self.retaining = [
            self._publisher("r1", 1, is_retaining=True),
            self._publisher("r2", 2, is_retaining=True),
        ]
        both = (f"{KEPT}/#", f"{OTHER}/#")
        self.subscribers = [
            Subscriber("s1", port, patterns=both, qos=1, is_lazy=True),
            Subscriber("s2", port, patterns=both, qos=2),
            Subscriber("s3", port, patterns=both, qos=2, is_lazy=True, window=50),
            Subscriber("s4", port, patterns=both, qos=2, version=V311),
        ]
        self.churner = Churner("c1", port)

    async def run(self, say: Callable[[str], None]) -> Outcome:
        node = self.node
        try:
            node.start()
            await self._begin()
            while node.kills < self.plan.kills:
                how = await self._die()
                self.kills[how] += 1
                say(f"kill {node.kills}: {how}")
            await node.wait_until_ready()
            problems = await self._drain()
            retained = await self._retained()
        finally:
            for client in self._clients():
                await client.stop()
            code = node.stop()
        if code:
            problems.append(f"exit code {code} when asked to stop")
        return self._judge(retained, problems)

    def _publisher(
        self,
        name: str,
        qos: int,
        *,
        version: int = V5,
        is_retaining: bool = False,
        rate_hz: int = 100,
    ) -> Publisher:
        random = Random(f"{self.plan.seed} {name}")  # noqa: S311
        return Publisher(
            name,
            self.node.port,
            random=random,
            qos=qos,
            version=version,
            is_retaining=is_retaining,
            rate_hz=rate_hz,
        )

    def _clients(self) -> Iterator[Client]:
        yield from self.subscribers
        yield from self.publishers
        yield from self.retaining
        yield self.churner

    async def _begin(self) -> None:
        """Subscribers first: from then on everything must reach them."""
        for subscriber in self.subscribers:
            subscriber.start()
        await _until(lambda: all(each.is_subscribed for each in self.subscribers))
        for client in self._clients():
            if not isinstance(client, Subscriber):
                client.start()

    async def _die(self) -> str:
        """Kill the node once, some time in its life, and start it anew."""
        node, random, plan = self.node, self._random, self.plan
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

    async def _drain(self) -> list[str]:
        """Let everybody finish; tells who could not."""
        for publisher in (*self.publishers, *self.retaining):
            publisher.is_done = True
        self.churner.is_done = True
        sources: list[Publisher | Churner] = [*self.publishers, *self.retaining, self.churner]
        if not await _until(lambda: all(each.is_drained() for each in sources)):
            return [
                f"{each.name}: an answer is missing" for each in sources if not each.is_drained()
            ]
        wanted = checks.acknowledged_of(self.publishers)
        deliveries = -1
        while deliveries < (deliveries := sum(each.deliveries for each in self.subscribers)):
            # As long as something still comes, it is not lost.
            await _until(lambda: all(wanted <= each.seen.keys() for each in self.subscribers), 5.0)
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
            for publisher in self.retaining
            for number in publisher.acknowledged
        }
        await _until(lambda: wanted <= found.keys(), 5.0)
        await newcomer.stop()
        return found

    def _judge(self, retained: dict[str, int], problems: list[str]) -> Outcome:
        journal = checks.read_journal(self.node.data / "journal")
        kept = checks.kept_of(self.publishers)
        everybody = (*self.publishers, *self.retaining)
        outcome = Outcome(
            kills=self.kills,
            starts=self.node.starts,
            slowest_start_s=max(self.node.start_s, default=0.0),
            reconnects=sum(max(0, each.connects - 1) for each in self._clients()),
            published=sum(each.published for each in everybody),
            acknowledged=sum(len(each.acknowledged) for each in everybody),
            refused=sum(len(each.refused) for each in everybody),
            resent=sum(each.resent for each in everybody),
            kept=len(kept),
            events=journal.events,
            kept_again=journal.events - len(journal.messages),
            kept_again_at_qos_2=checks.kept_again(journal, self.publishers),
            deliveries=sum(each.deliveries for each in self.subscribers),
            delivered_again=sum(each.deliveries - len(each.seen) for each in self.subscribers),
            churn_rounds=self.churner.rounds,
            lost_events=[
                f"{number} of {name} is not in the journal"
                for name, number in sorted(kept - journal.messages.keys())
            ],
            unretained=list(checks.unretained(self.retaining, retained)),
        )
        for subscriber in self.subscribers:
            outcome.lost_messages += checks.undelivered(subscriber, self.publishers)
            outcome.repeated += checks.repeated(subscriber, self.publishers)
            outcome.disordered += subscriber.disorder
        outcome.problems += [*problems, *journal.problems]
        outcome.problems += checks.complaints(self.node.output())
        for client in self._clients():
            outcome.problems += client.problems
        return outcome


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
    return await Killing(plan, folder).run(say)
