from __future__ import annotations

from accord.core.policy.grants import DEFAULT_GRANT, Grant
from accord.core.quality.mechanisms import HIGHER, ActiveMechanisms
from accord.core.quality.messages import ApplyMechanism, MechanismStep

PLACE = ("lab/t", "sensor")
SCALED = Grant(3, 0, "scaling", 0, 0, True, "images")


def act(reaction: int, step: MechanismStep, target: float = 50.0) -> ApplyMechanism:
    return ApplyMechanism(reaction, step, "sensor", "lab/t", "latency", target)


def test_events_are_raised_as_long_as_any_reaction_wants_it() -> None:
    acts = ActiveMechanisms()
    for reaction in (1, 2, 2):
        assert acts.apply(act(reaction, MechanismStep.RAISE_IMPORTANCE))
    assert len(acts) == 2
    acts.withdraw(1)
    lifted = acts.adjustments[PLACE].grant(DEFAULT_GRANT)
    assert lifted.importance == DEFAULT_GRANT.importance + HIGHER
    assert lifted.leaves_ms == 0
    acts.withdraw(2)
    assert acts.adjustments == {}
    assert len(acts) == 0


def test_events_are_shaped_for_whoever_wants_them_soonest() -> None:
    acts = ActiveMechanisms()
    assert acts.apply(act(1, MechanismStep.SHAPE, 80))
    assert acts.apply(act(2, MechanismStep.SHAPE, 30))
    lifted = acts.adjustments[PLACE].grant(SCALED)
    assert (lifted.leaves_ms, lifted.shaping, lifted.importance) == (30, "scaling", 3)
    acts.withdraw(2)
    assert acts.adjustments[PLACE].grant(SCALED).leaves_ms == 80
    acts.withdraw(1)
    assert acts.adjustments == {}


def test_a_sequence_is_undone_as_a_whole() -> None:
    acts = ActiveMechanisms()
    for step in (MechanismStep.RAISE_IMPORTANCE, MechanismStep.SHAPE, MechanismStep.FILTER_RATE):
        assert acts.apply(act(5, step))
    acts.withdraw(5)
    assert (acts.adjustments, acts.filters, len(acts)) == ({}, {}, 0)


def test_what_is_not_for_events_is_left_to_others() -> None:
    acts = ActiveMechanisms()
    assert not acts.apply(act(1, MechanismStep.ADD_PATH))
    assert not acts.apply(act(1, MechanismStep.ADVISE))
    acts.withdraw(1)
    assert len(acts) == 0
