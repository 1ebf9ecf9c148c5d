from __future__ import annotations

from accord.apps.five_cities.cities import DENVER, LOS_ANGELES, SEATTLE, TIGHT, WASHINGTON
from accord.apps.five_cities.phases import (
    ChannelPhase,
    CityFlow,
    CityPhase,
    PhaseMeasurement,
    phase_plans,
    summarise_phase,
)

OVER_DENVER = (SEATTLE, DENVER, WASHINGTON)
OVER_LOS_ANGELES = (SEATTLE, LOS_ANGELES, WASHINGTON)
ALL = (SEATTLE, LOS_ANGELES, DENVER, WASHINGTON)
GOOD = PhaseMeasurement(
    delivered=1_000, late=0, violated_s=0, gap_s=0.03, median_s=0.03, longest_s=0.04
)
LATE = PhaseMeasurement(
    delivered=1_000, late=7, violated_s=0.31, gap_s=0.12, median_s=0.03, longest_s=0.5
)


def told(
    before: tuple[tuple[str, ...], ...], after: tuple[tuple[str, ...], ...], span: PhaseMeasurement
) -> str:
    line = ChannelPhase(TIGHT, CityFlow(before), CityFlow(after), 0.25, span)
    return "\n".join(summarise_phase(CityPhase(phase_plans()[1], 8.0, [line])))


def test_four_phases_in_which_things_happen() -> None:
    assert [act.kind for act in phase_plans()] == ["nothing", "slow", "cut", "kill"]
    assert "takes 85 ms instead of 12" in phase_plans()[1].text
    assert "takes 170 ms instead of 24" in phase_plans(2)[1].text


def test_at_first_the_paths_are_told() -> None:
    text = told((), (OVER_DENVER, OVER_LOS_ANGELES), GOOD)
    assert "goes by Seattle → Denver → Washington and Seattle → Los Angeles → Washington." in text
    assert "all 1,000 in time, none took longer than 40 ms." in text


def test_nothing_changed() -> None:
    both = (OVER_DENVER, OVER_LOS_ANGELES)
    assert "stays on its 2 paths" in told(both, both, GOOD)
    assert "stays on its path." in told(both[:1], both[:1], GOOD)


def test_what_it_left_what_it_took_and_what_held_it_up_meanwhile() -> None:
    text = told((OVER_DENVER, OVER_LOS_ANGELES), (OVER_LOS_ANGELES, ALL), GOOD)
    assert (
        "leaves Seattle → Denver → Washington and takes Seattle → Los Angeles → Denver → "
        "Washington, settled after 250 ms." in text
    )
    assert "Meanwhile it went on by Seattle → Los Angeles → Washington." in text


def test_late_events_are_told() -> None:
    text = told((OVER_DENVER,), (OVER_LOS_ANGELES,), LATE)
    assert "7 of 1,000 late, the last published 310 ms after the change" in text
    assert "longest without any: 120 ms" in text


def test_nothing_is_left() -> None:
    assert "takes nothing" in told((OVER_DENVER,), (), GOOD)
    assert "goes by no path" in told((), (), GOOD)
