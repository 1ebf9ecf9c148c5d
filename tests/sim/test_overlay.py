"""Random overlays keep their promises; a failure says the seed that replays it.

`scripts/sim_runs.py` makes as many as one likes.
"""

from __future__ import annotations

import pytest

from accord.sim.node import OverlayNode
from tests.sim.overlay_runs import END, run, simulation


@pytest.mark.parametrize("seed", range(20, 180))
def test_random_overlays(seed: int) -> None:
    run(seed, is_checking=False).check()


@pytest.mark.parametrize("seed", range(1_000, 1_020))
def test_nothing_is_ever_as_it_must_not_be(seed: int) -> None:
    """All invariants of all nodes, after each step."""
    run(seed, is_checking=True).check()


def test_the_runs_are_worth_something() -> None:
    """Among them are some with crashes, with events sent again, and with routes that changed."""
    crashes = again = changes = 0
    for seed in range(20):
        world = simulation(seed, is_checking=False)
        crashes += world.run(END).check().crashes
        for machine in world.machines().values():
            assert isinstance(machine, OverlayNode)
            overlay = machine.overlay
            again += sum(each.retransmitted for each in overlay.sender.buffers.values())
            changes += overlay.routes.computed
    assert min(crashes, again, changes) > 10
