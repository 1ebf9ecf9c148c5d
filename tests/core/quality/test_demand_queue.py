from __future__ import annotations

from accord.core.quality.demands import DemandQueue


def test_what_is_urgent_comes_first_and_each_once() -> None:
    agenda = DemandQueue()
    agenda.add(["a", "b", "c", "a"])
    agenda.add_urgent(["c", "d"])
    agenda.add(["d", "e"])
    agenda.remove("b")
    agenda.check_invariants()
    assert len(agenda) == 4
    assert "c" in agenda
    assert "b" not in agenda
    assert [agenda.take() for _ in range(5)] == ["c", "d", "a", "e", None]
    assert not agenda
