"""Demonstrations from start to end, as the README starts them; five-cities is a scenario."""

from __future__ import annotations

import pytest

from tests.acceptance.machine import Machine


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("targeting", ("uav/imagery", "patrol", "shaped")),
        ("grid", ("grid/", "alarm", "shaped")),
    ],
)
def test_it_plays_to_its_end(default: Machine, name: str, shown: tuple[str, ...]) -> None:
    told = default.run(f"COLUMNS=80 accord demo {name}", within_s=400)
    for word in shown:
        assert word.lower() in told.lower()
    assert all(len(line) <= 80 for line in told.splitlines())
