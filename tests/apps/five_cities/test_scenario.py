"""The story with real clients: here on one node in memory, which is all five cities."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from accord.apps.five_cities.cities import (
    CITIES,
    DENVER,
    LOOSE,
    LOS_ANGELES,
    ORLANDO,
    SEATTLE,
    TIGHT,
    WASHINGTON,
)
from accord.apps.five_cities.phases import CityFlow, CityPhase, CityPhasePlan, Kind
from accord.apps.five_cities.scenario import FiveCitiesScenario
from accord.core.model.errors import AccordError
from accord.testing import MemoryNode

LIMIT_S = 60.0
URLS = dict.fromkeys(CITIES, "mqtt://memory")
FIRST = CityFlow(((SEATTLE, DENVER, WASHINGTON),), (29.0,))
OTHER = CityFlow(((SEATTLE, LOS_ANGELES, WASHINGTON),), (38.0,))
STILL = CityFlow(((SEATTLE, LOS_ANGELES, ORLANDO),), (41.0,))
ACTS = [CityPhasePlan("a", "nothing", "All is well."), CityPhasePlan("b", "slow", "It is not.")]


class Notes:
    """A stage on which one path changes when something happens."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.happened: list[Kind] = []
        self.is_broken = is_broken

    async def inject(self, kind: Kind) -> None:
        self.happened.append(kind)

    async def flows(self) -> Mapping[str, CityFlow]:
        if self.is_broken and self.happened:
            raise AccordError("the network is gone")
        tight = OTHER if "slow" in self.happened else FIRST
        return {TIGHT.name: tight, LOOSE.name: STILL}


def played(stage: Notes) -> FiveCitiesScenario:
    async def run() -> FiveCitiesScenario:
        async with asyncio.timeout(LIMIT_S), MemoryNode() as node:
            play = FiveCitiesScenario(
                URLS,
                stage,
                paths=1,
                on_phase_start=lambda _: None,
                on_phase_end=ended.append,
                transport=node.connect,
            )
            await play.run(ACTS, [0.3, 0.5])
            return play

    ended: list[CityPhase] = []
    play = asyncio.run(run())
    assert play.phases == ended
    return play


def test_everything_published_is_counted_once() -> None:
    play = played(Notes())
    assert play.is_flawless
    for meter in play.meters.values():
        assert meter.published == meter.delivered > 10
        assert not meter.duplicates


def test_every_act_happens_and_is_told_with_its_paths() -> None:
    stage = Notes()
    tight, loose = zip(*(phase.channels for phase in played(stage).phases), strict=True)
    assert stage.happened == ["nothing", "slow"]
    assert [(line.before, line.after) for line in tight] == [(CityFlow(()), FIRST), (FIRST, OTHER)]
    assert [(line.before, line.after) for line in loose] == [(CityFlow(()), STILL), (STILL, STILL)]
    assert tight[1].converged_s > 0
    assert loose[1].converged_s == 0


def test_a_problem_ends_it_and_is_told_as_it_is() -> None:
    with pytest.raises(AccordError, match="the network is gone"):
        played(Notes(is_broken=True))
