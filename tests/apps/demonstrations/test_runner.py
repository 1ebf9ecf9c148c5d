"""A scenario runs on real clients: here against a node in memory, with a fake administrator."""

from __future__ import annotations

import asyncio
from typing import Any

from accord.apps.demonstrations.meters import Meters
from accord.apps.demonstrations.runner import ScenarioRunner
from accord.apps.demonstrations.scenario import (
    DemoScenario,
    DemoSource,
    PhasePlan,
    Sample,
)
from accord.core.monitoring.outcomes import DeliveryOutcomes
from accord.operations.operation import Request
from accord.operations.policies import Changed, PatchPolicies, PutPolicies
from accord.operations.status import ListOutcomes
from accord.testing import MemoryNode

LIMIT_S = 60.0
IMAGES, TRACKS = "images", "tracks"
PHASES = (
    PhasePlan("1", "", (PutPolicies(toml="strategy = 'strict'"),)),
    PhasePlan("2", "", (PatchPolicies(settings={"bandwidth": "1 Mbit/s"}),)),
)


class FakeNode:
    """Accepts every change, and records it."""

    def __init__(self) -> None:
        self.changes: list[Request[Any]] = []
        self.asked: list[int | None] = []

    def call(self, request: Request[Any], timeout_s: float | None = None) -> Any:  # noqa: ARG002
        if isinstance(request, ListOutcomes):
            self.asked.append(request.since_ms)
            return DeliveryOutcomes(outcomes=(), is_complete=True)
        self.changes.append(request)
        return Changed(version=len(self.changes))


def source(client: str, channel: str, size: int) -> DemoSource:
    return DemoSource(client, channel, 0.05, 0.0, lambda number: Sample({"n": number}, bytes(size)))


def test_every_source_is_received_in_every_phase() -> None:
    fake, ended = FakeNode(), []
    sources = [source("camera", IMAGES, 500), source("crew", TRACKS, 100)]
    scenario = DemoScenario("screen", (IMAGES, TRACKS), PHASES, lambda _: sources)

    def end(plan: PhasePlan, meters: Meters) -> None:
        ended.append((plan.name, [each.offered > 0 for each in meters]))

    async def run() -> Meters:
        async with asyncio.timeout(LIMIT_S), MemoryNode() as node:
            runner = ScenarioRunner(
                "mqtt://memory", fake, scenario, sources, on_tick=lambda *_: None,
                on_phase_end=end, transport=node.connect,
            )  # fmt: skip
            await runner.run(0.5)
            return runner.meters

    meters = asyncio.run(run())
    assert fake.changes == [change for plan in PHASES for change in plan.changes]
    assert ended == [("1", [True, True]), ("2", [True, True])]
    assert fake.asked
    for phase in meters.phases:
        for line in phase.sources.values():
            assert line.received == line.offered > 0
            assert not line.shaped
            assert line.received_bytes == line.offered_bytes
