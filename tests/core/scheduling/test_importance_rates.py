from __future__ import annotations

from accord.core.scheduling.shaping_decision import ImportanceRates
from accord.core.scheduling.strategies import FIFO, STRICT, WEIGHTED_FAIR, Discipline


def busy() -> ImportanceRates:
    """600 kbit/s of importance 5, and 200 of 3."""
    flows = ImportanceRates(0)
    for _ in range(2):
        flows.sent(5, 75_000)
        flows.sent(3, 25_000)
    flows.available_bps(0, 1, Discipline(), 2_000)
    return flows


def test_what_is_more_important_goes_off() -> None:
    discipline = Discipline(STRICT)
    assert busy().available_bps(6, 800_000, discipline, 2_000) == 800_000
    assert busy().available_bps(5, 800_000, discipline, 2_000) == 800_000
    assert busy().available_bps(3, 800_000, discipline, 2_000) == 200_000
    assert busy().available_bps(1, 800_000, discipline, 2_000) == 100_000


def test_under_weighted_fair_nobody_has_less_than_its_share() -> None:
    weights = [1, 1, 1, 1, 1, 1, 1, 1]
    left_bps = busy().available_bps(1, 900_000, Discipline(WEIGHTED_FAIR, weights), 2_000)
    assert left_bps == 300_000


def test_first_come_knows_no_importance() -> None:
    assert busy().available_bps(1, 800_000, Discipline(FIFO), 2_000) == 800_000


def test_what_was_long_ago_is_forgotten() -> None:
    assert busy().available_bps(1, 800_000, Discipline(STRICT), 9_000) == 800_000
