"""Five cities on a screen. The whole runs in tests/scenarios."""

from __future__ import annotations

import pytest
from rich.console import Console

from accord.apps.five_cities.cities import DENVER, LOS_ANGELES, SEATTLE, TIGHT, WASHINGTON
from accord.apps.five_cities.phases import (
    ChannelLatencies,
    ChannelPhase,
    CityFlow,
    CityPhase,
    PhaseMeasurement,
    phase_plans,
)
from accord.apps.five_cities.screen import draw_act, draw_phase, draw_summary, draw_total

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
