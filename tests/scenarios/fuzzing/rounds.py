"""Rounds of hostile connections; after each, the node must be as well as before.

Everything that is sent follows from the seed and the corpus. The streams of a round that ended
badly are written to a file, from which `replay` sends them again, one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import uvloop

from tests.scenarios.fuzzing.corpus import Corpus, make_corpus
from tests.scenarios.fuzzing.deaf import check_deaf
from tests.scenarios.fuzzing.healthy import check_round_trips
from tests.scenarios.fuzzing.hostile import send
from tests.scenarios.fuzzing.node import FuzzedNode, Usage
from tests.scenarios.fuzzing.recording import record
from tests.scenarios.fuzzing.streams import Stream, make_stream

_SETTLE_S: Final = 40.0
_SLACK_BYTES: Final = 15_000_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    packets: int = 1_000_000
    rounds: int = 10
    connections: int = 300  # at the same time
    seed: int = 1
    checks_memory: bool = True  # for runs long enough that it says something


class Round(msgspec.Struct):
    packets: int = 0
    handled: int = 0
    connections: int = 0
    took_s: float = 0.0
    cpu_s: float = 0.0
    resident_bytes: int = 0
    sessions: int = 0


class Outcome(msgspec.Struct):
    before: Usage
    rounds: list[Round] = []
    failures: list[str] = []
    replays: list[Path] = []
    exit_code: int = 0


class Case(msgspec.Struct):
    """A round to send again."""

    failures: list[str]
    streams: list[Stream]


class Fuzzing:
    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._say = say
        self._node = FuzzedNode(folder)

    async def run(self) -> Outcome:
        node = self._node
        try:
            await asyncio.to_thread(node.wait_until_ready)
            corpus = make_corpus(await record(node.port))
            await check_round_trips(node)
            outcome = Outcome(node.usage())
            for number in range(self._plan.rounds):
                await self._round(number, corpus, outcome)
                if not node.is_alive():
                    break
            else:
                outcome.failures += [*await check_deaf(node), *node.complaints()]
        finally:
            code = await asyncio.to_thread(node.stop)
        outcome.exit_code = code
        if code:
            outcome.failures.append(f"exit code {code} when asked to stop")
        outcome.failures += node.complaints()
        if self._plan.checks_memory:
            outcome.failures += _growth(outcome)
        return outcome

    async def _round(self, number: int, corpus: Corpus, outcome: Outcome) -> None:
        node, plan = self._node, self._plan
        counted = node.statistics()["received"]["packets"]
        usage = node.usage()
        began_s = time.monotonic()
        streams = _streams(f"{plan.seed} {number}", corpus, plan.packets // plan.rounds)
        done = Round()
        sent: list[Stream] = []
        failures: list[str] = []

        async def work() -> None:
            for stream in streams:
                sent.append(stream)
                problem = await _send(stream, node, len(sent))
                if problem is not None:
                    failures.append(f"stream {sent.index(stream)}: {problem}")
                if failures and not node.is_alive():
                    return

        await asyncio.gather(*(work() for _ in range(plan.connections)))
        done.took_s = time.monotonic() - began_s
        failures += await self._is_well(outcome.before)
        if node.is_alive():
            after, statistics = node.usage(), node.statistics()
            done.cpu_s = after.cpu_s - usage.cpu_s
            done.resident_bytes = after.resident_bytes
            done.handled = statistics["received"]["packets"] - counted
            done.sessions = statistics["sessions"]
        done.connections = len(sent)
        done.packets = sum(stream.packets for stream in sent)
        outcome.rounds.append(done)
        self._say(_line(number, done))
        if failures:
            outcome.failures += failures
            file = self._folder / f"fuzz-{plan.seed}-{number}.msgpack"
            file.write_bytes(msgspec.msgpack.encode(Case(failures, sent)))
            outcome.replays.append(file)

    async def _is_well(self, before: Usage) -> list[str]:
        """What is wrong with the node now that everybody is gone."""
        node = self._node
        if not node.is_alive():
            return [f"the node ended, exit code {node.process.poll()}", *node.complaints()]
        problems = list(node.complaints())
        try:
            await check_round_trips(node)
        except (AssertionError, OSError, TimeoutError) as error:
            problems.append(f"no round trip: {error!r}")
        until_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < until_s:
            statistics = await asyncio.to_thread(node.statistics)
            # Open files may be a few more: segments of the journal, a connection of this check.
            files = node.usage().files - before.files
            if statistics["connections"] == 0 and statistics["sessions"] == 0 and files <= 3:
                return problems
            await asyncio.sleep(0.2)
        left = f"{statistics['connections']} connections, {statistics['sessions']} sessions"
        problems.append(f"still there: {left}, {files} more open files than at the start")
        return problems


def run_fuzz(plan: Plan, folder: Path, say: Callable[[str], None] = lambda _: None) -> Outcome:
    async def run() -> Outcome:
        return await Fuzzing(plan, folder, say).run()

    return uvloop.run(run())


def replay(file: Path, folder: Path, say: Callable[[str], None]) -> list[str]:
    """Send the streams of `file` one after the other; the first that does harm is told."""
    case = msgspec.msgpack.decode(file.read_bytes(), type=Case)
    return uvloop.run(_replay(case, folder, say))


async def _replay(case: Case, folder: Path, say: Callable[[str], None]) -> list[str]:
    node = FuzzedNode(folder)
    try:
        await asyncio.to_thread(node.wait_until_ready)
        for number, stream in enumerate(case.streams):
            problem = await _send(stream, node, number)
            await asyncio.sleep(0.002)
            failures = node.complaints()
            if problem is not None:
                failures.append(problem)
            if not node.is_alive():
                failures.append("the node ended")
            if failures:
                return [f"stream {number}: {stream}", *failures]
            if number % 1_000 == 0:
                say(f"{number} of {len(case.streams)} streams did no harm")
    finally:
        await asyncio.to_thread(node.stop)
    return []


async def _send(stream: Stream, node: FuzzedNode, number: int) -> str | None:
    port = node.websocket_port if stream.is_websocket else node.port
    return await send(stream, port, number)


def _streams(seed: str, corpus: Corpus, packets: int) -> Iterator[Stream]:
    random = Random(seed)  # noqa: S311
    everything = corpus.all()
    while packets > 0:
        stream = make_stream(random, corpus, everything)
        packets -= stream.packets
        yield stream


def _growth(outcome: Outcome) -> list[str]:
    """Memory after the last round against that after the second, when everything was used."""
    if len(outcome.rounds) < 4 or outcome.failures:
        return []
    first, last = outcome.rounds[1].resident_bytes, outcome.rounds[-1].resident_bytes
    if last <= first * 1.1 + _SLACK_BYTES:
        return []
    return [f"memory grew from {first >> 20} MB after the second round to {last >> 20} MB"]


def _line(number: int, done: Round) -> str:
    rate = done.packets / max(done.took_s, 0.001)
    return (
        f"round {number + 1}: {done.packets} packets ({done.handled} counted by the node) over "
        f"{done.connections} connections in {done.took_s:.1f} s, {rate:.0f}/s, "
        f"node {done.cpu_s:.1f} s CPU, {done.resident_bytes >> 20} MB"
    )
