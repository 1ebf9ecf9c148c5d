"""`accord demo five-cities`: on a screen, and how it ends. The whole runs in tests/scenarios."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

import accord.cli.five_cities
from accord.apps.five_cities.cities import DENVER, LOS_ANGELES, SEATTLE, TIGHT, WASHINGTON
from accord.apps.five_cities.phases import (
    ChannelLatencies,
    ChannelPhase,
    CityFlow,
    CityPhase,
    PhaseMeasurement,
    phase_plans,
)
from accord.cli.demo import app
from accord.cli.demo_process import DemoError, NodeProcess
from accord.cli.five_cities import draw_act, draw_phase, draw_summary, draw_total
from accord.cli.five_cities_net import FiveCities

OVER_DENVER = (SEATTLE, DENVER, WASHINGTON)
OVER_LOS_ANGELES = (SEATTLE, LOS_ANGELES, WASHINGTON)
SPAN = PhaseMeasurement(
    delivered=900, late=3, violated_s=0.25, gap_s=0.06, median_s=0.03, longest_s=0.12
)
PHASE = CityPhase(
    phase_plans()[1],
    8.0,
    [
        ChannelPhase(
            TIGHT,
            CityFlow((OVER_DENVER,), (29.0,)),
            CityFlow((OVER_LOS_ANGELES,), (38.4,)),
            0.3,
            SPAN,
        )
    ],
)


def drawn(thing: object, width: int = 120) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


def test_a_phase_shows_what_happens_and_which_paths_change() -> None:
    assert "Phase b · link slowdown\nSeattle–Denver takes 85 ms" in drawn(draw_act(PHASE.plan))
    lines = drawn(draw_phase(PHASE)).splitlines()
    assert any("90 ms  − Seattle → Denver → Washington" in line for line in lines)
    new = next(line for line in lines if "+ Seattle → Los Angeles → Washington" in line)
    assert new.rstrip().endswith("38 ms")
    assert any(line.startswith("→ seismic/alert: 3 of 900 late") for line in lines)


@pytest.mark.parametrize("width", [80, 140])
def test_the_summary_has_a_row_for_each_channel_and_phase(width: int) -> None:
    text = drawn(draw_summary([PHASE]), width)
    row = next(line for line in text.splitlines() if "b · link slowdown" in line)
    assert " ".join(row.split()).endswith("seismic/alert 3 250 ms 60 ms 300 ms 30 ms 120 ms")


def test_the_total_tells_what_is_wrong_only_if_it_is() -> None:
    meter = ChannelLatencies(TIGHT)
    for number in range(3):
        meter.publish(number)
    for number in range(3):
        meter.receive(number, number + 0.01)
    assert drawn(draw_total(meter)) == "seismic/alert: published 3, delivered 3, late 0\n"
    meter.publish(3)
    meter.receive(0, 4)
    assert drawn(draw_total(meter)) == (
        "seismic/alert: published 4, delivered 3, late 0, lost 1, twice 1\n"
    )


@pytest.mark.parametrize(("is_flawless", "code"), [(True, 0), (False, 1)])
def test_a_loss_is_an_error(is_flawless: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[FiveCities, float]] = []

    async def play(_: Console, net: FiveCities, seconds: float) -> SimpleNamespace:
        asked.append((net, seconds))
        return SimpleNamespace(is_flawless=is_flawless)

    monkeypatch.setattr(accord.cli.five_cities, "play_five_cities", play)
    options = ["five-cities", "--quick", "--paths", "1", "--stretch", "2"]
    assert CliRunner().invoke(app, options).exit_code == code
    (net, seconds), *_ = asked
    assert (net.paths, net.stretch) == (1, 2)
    assert seconds > 1
    assert [channel.max_delay_ms for channel in net.channels] == [180, 500]


@pytest.mark.parametrize("options", [["--paths", "3"], ["--ping", "1"], ["--stretch", "0"]])
def test_what_can_not_be(options: list[str]) -> None:
    assert CliRunner().invoke(app, ["five-cities", *options]).exit_code == 2


def test_a_node_that_does_not_start_says_why() -> None:
    with pytest.raises(DemoError, match=r"did not start.*nonsense"):
        asyncio.run(NodeProcess.start("[nonsense]\n"))
