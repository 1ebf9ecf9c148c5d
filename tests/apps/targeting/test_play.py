"""The story runs on real clients: here against a node in memory, with a stage that keeps notes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from accord.apps.targeting.cast import IMAGERY, TRACKING, Sample, Source
from accord.apps.targeting.meters import Fate, Meters
from accord.apps.targeting.play import Play
from accord.apps.targeting.story import Act, Change
from accord.testing import MemoryNode

LIMIT_S = 60.0
ACTS = [
    Act("1", "", (Change("PUT", "", "strategy = 'strict'"),)),
    Act("2", "", (Change("PATCH", "", {"bandwidth": "1 Mbit/s"}),)),
]


class Notes:
    """A stage that takes everything."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.asked: list[int] = []

    async def change(self, change: Change) -> None:
        self.changes.append(change)

    async def fates(self, since_ms: int) -> Sequence[Fate]:
        self.asked.append(since_ms)
        return []


def source(client: str, channel: str, size: int) -> Source:
    return Source(client, channel, 0.05, 0.0, lambda number: Sample({"n": number}, bytes(size)))


def test_every_source_is_heard_in_every_act() -> None:
    notes, ended = Notes(), []
    sources = [source("UAV-1", IMAGERY, 500), source("PATROL-1", TRACKING, 100)]

    def end(act: Act, meters: Meters) -> None:
        ended.append((act.name, [each.offered > 0 for each in meters]))

    async def run() -> Meters:
        async with asyncio.timeout(LIMIT_S), MemoryNode() as node:
            play = Play(
                "mqtt://memory", notes, sources, on_tick=lambda *_: None, on_act=end,
                transport=node.connect,
            )  # fmt: skip
            await play.run(ACTS, 0.5)
            return play.meters

    meters = asyncio.run(run())
    assert notes.changes == [change for act in ACTS for change in act.changes]
    assert ended == [("1", [True, True]), ("2", [True, True])]
    assert notes.asked
    for phase in meters.phases:
        for line in phase.lines.values():
            assert line.received == line.offered > 0
            assert not line.shaped
            assert line.received_bytes == line.offered_bytes
