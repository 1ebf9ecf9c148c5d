from __future__ import annotations

import pytest
from benchmarks.options import QUICK

from benchmarks import policies


def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_QUICK_SIZES", (20, 40))
    for name in ("_OPENED", "_OPEN", "_CALLS", "_CHECKED"):
        monkeypatch.setattr(policies, name, 10)
    opening, changing = policies.run(QUICK)
    assert [row[0] for row in opening.rows] == [row[0] for row in changing.rows] == ["20", "40"]
    figures = [float(cell.replace(",", "")) for row in opening.rows for cell in row[1:]]
    assert all(figure >= 0 for figure in figures)
