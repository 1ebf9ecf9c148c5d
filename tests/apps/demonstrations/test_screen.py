"""Demonstrations on a screen: figures, words and summary."""

from __future__ import annotations

import re

import pytest
from rich.console import Console, Group
from tests.apps.ledger_outcomes import ledger_outcome

from accord.apps.demonstrations.grid import GRID
from accord.apps.demonstrations.meters import Meters
from accord.apps.demonstrations.scenario import DemoScenario, DemoSource, PhasePlan, Sample
from accord.apps.demonstrations.screen import draw_phase, draw_summary, draw_words, sparkline
from accord.apps.demonstrations.targeting import IMAGERY, TARGETING

UAV = (IMAGERY, "UAV-1")


def drawn(thing: object, width: int = 120) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


def measured() -> Meters:
    source = DemoSource("UAV-1", IMAGERY, 1.0, 0.0, lambda _: Sample({}, b""))
    meters = Meters([IMAGERY], [source])
    meters.begin("1 · no limit", now_ms=1_000, now_s=1.0)
    for number in range(3):
        meters.published(UAV, number, 50_000, now_s=1.0)
    meters.received(UAV, 0, 50_000, now_s=1.5)
    meters.received(UAV, 1, 20_000, now_s=2.0)
    outcome = ledger_outcome("A", IMAGERY, "UAV-1", "expired", 1_100, importance=2, policy="AllUAS")
    meters.add_outcomes([outcome])
    meters.tick(2.0)
    return meters


def test_a_phase_shows_every_figure_of_a_source() -> None:
    text = drawn(draw_phase(PhasePlan("1 · no limit", "Text.", ()), measured()), 140)
    assert "Phase 1 · no limit   2 s, 600 kbit/s offered, 280 received" in text
    row = next(line for line in text.splitlines() if line.startswith(IMAGERY))
    cells = re.split(r"\s{2,}", row.strip())
    assert cells == [
        *UAV, "2", "2/3", "1 expired", "1.00 s", "1: 50→20", "750 ms", "280", "█",
    ]  # fmt: skip


@pytest.mark.parametrize("scenario", [GRID, TARGETING])
def test_tables_fit_every_screen_and_leave_nothing_out(scenario: DemoScenario) -> None:
    """With figures as wide as they become: three digits, two causes, all phases."""
    meters = Meters(scenario.channels, scenario.make_sources(0.1))
    for plan in scenario.phases:
        meters.begin(plan.name, now_ms=1_000, now_s=1.0)
        for key in meters.keys:
            line = meters.phase.sources[key]
            line.offered, line.received, line.received_bytes = 130, 100, 6_000_000
            line.importance, line.latencies_s = 6, [0.00123, 0.00456]
            line.shaped, line.shaped_from, line.shaped_to = 88, 88 * 60_000, 88 * 14_000
            line.dropped.update({"expired": 12, "replaced": 18})
        for _ in range(30):
            meters.tick(1.0)
    tables = Group(draw_phase(scenario.phases[-1], meters), draw_summary(meters))
    words = sorted(drawn(tables, 1_000).replace("─", "").split())
    for width in (80, 100, 140):
        text = drawn(tables, width)
        assert max(map(len, text.splitlines())) <= width
        assert sorted(text.replace("─", "").split()) == words
    for line in meters.phase.sources.values():
        del line.dropped["replaced"]
    brief = drawn(draw_phase(scenario.phases[-1], meters, is_brief=True), 80)
    assert len(brief.splitlines()) < 24


def test_words_and_summary_come_from_the_same_figures() -> None:
    meters = measured()
    assert "uav/imagery loses 1 of 3: 1 expired (importance 2, policy AllUAS)." in drawn(
        draw_words(meters)
    )
    assert "67% 1.00 s 35 KB" in drawn(draw_summary(meters), 80)


def test_a_sparkline_has_its_highest_at_the_top() -> None:
    assert sparkline([0, 1, 2, 4], 3) == "▃▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
