from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.kills.run import JAVA, PYTHON, WRITING, Plan, run_kills


@pytest.mark.timeout(600)  # Spark is started four times
def test_a_killed_driver_loses_and_repeats_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = run_kills(Plan(kills=3, seed=7, life_s=1.0), tmp_path, said.append)
    assert outcome.failures() == [], (said, outcome.problems)
    assert (outcome.kills[PYTHON], outcome.kills[JAVA], outcome.kills[WRITING]) == (1, 1, 1)
    assert outcome.starts == 4
    assert outcome.events > 1_000
    assert outcome.ledger_rows > 0
