"""`accord demo`: from start to end on nodes of its own, and how it ends."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from accord.apps.demonstrations.grid import GRID
from accord.apps.demonstrations.scenario import DemoScenario
from accord.apps.demonstrations.targeting import TARGETING
from accord.apps.five_cities import screen
from accord.apps.five_cities.network import FiveCities
from accord.cli.demo import app


@pytest.mark.parametrize(
    ("name", "scenario"), [("targeting", TARGETING), ("grid", GRID)], ids=["targeting", "grid"]
)
def test_a_whole_demonstration_on_a_node_of_its_own(name: str, scenario: DemoScenario) -> None:
    result = CliRunner().invoke(app, [name, "--plain", "--seconds-per-phase", "2s"])
    assert result.exit_code == 0, result.output
    for plan in scenario.phases:
        assert f"Phase {plan.name}" in result.output
    summary = result.output.partition("Summary")[2]
    for channel in scenario.channels:
        # Without a limit everything arrives.
        assert re.search(rf"{channel}\s+\S+\s+100% ", summary), result.output
    assert "nothing dropped" in result.output.partition("Phase 2")[0]


@pytest.mark.parametrize(("is_flawless", "code"), [(True, 0), (False, 1)])
def test_a_loss_is_an_error(is_flawless: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[FiveCities, float]] = []

    async def play(_: Console, net: FiveCities, seconds: float) -> SimpleNamespace:
        asked.append((net, seconds))
        return SimpleNamespace(is_flawless=is_flawless)

    monkeypatch.setattr(screen, "play_five_cities", play)
    options = ["five-cities", "--quick", "--paths", "1", "--stretch", "2"]
    assert CliRunner().invoke(app, options).exit_code == code
    (net, seconds), *_ = asked
    assert (net.paths, net.stretch) == (1, 2)
    assert seconds > 1
    assert [channel.max_delay_ms for channel in net.channels] == [180, 500]


@pytest.mark.parametrize("options", [["--paths", "3"], ["--ping", "1"], ["--stretch", "0"]])
def test_what_can_not_be(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["five-cities", *options]).exit_code == 2
