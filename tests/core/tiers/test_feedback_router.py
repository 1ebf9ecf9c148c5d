"""Who gets an answer for a secondary node, and when it is safe."""

from __future__ import annotations

from accord.core.channels.channels import Channels
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.router.rights import FEEDBACK
from accord.core.tiers.feedback_router import CHILD, FeedbackRouter


def overlay(name: str = "a") -> Overlay:
    return Overlay(name, 1, OverlayOptions(), lambda: 0.5, lambda *_: None)


def link(at: Overlay, other: str) -> None:
    at.map.set_link(at.name, other, 1_000, 0.0, True, 0.0)
    at.map.set_link(other, at.name, 1_000, 0.0, True, 0.0)


def test_a_child_is_answered_through_its_parent_as_long_as_it_is_there() -> None:
    at = overlay()
    answering = FeedbackRouter(Channels(at))
    assert answering.destinations("x") == []
    answering.on_joined("x", 1)
    assert answering.destinations("x") == ["a"]
    assert FeedbackRouter(Channels(at)).destinations("x") == ["a"], (
        "what was told before counts, too"
    )
    answering.on_left("x")
    assert answering.destinations("x") == []
    answering.check_invariants()


def test_parents_that_can_not_be_reached_get_it_only_where_no_other_can() -> None:
    at = overlay()
    answering = FeedbackRouter(Channels(at))
    answering._on_record("gone", "x", b"")
    answering._on_record("b", "x", b"")
    assert answering.destinations("x") == ["gone", "b"]
    link(at, "b")
    assert answering.destinations("x") == ["b"]
    assert answering.destinations("b") == ["b"], "no secondary node"
    answering.on_joined("x", 1)
    assert answering.destinations("x") == ["b", "a"]


def test_however_many_say_that_they_are_parents_few_are_believed() -> None:
    at = overlay()
    answering = FeedbackRouter(Channels(at))
    for number in range(1_000):
        answering._on_record(f"n{number}", "x", b"nonsense")
    assert len(answering.destinations("x")) == 8
    for number in range(1_000):
        answering._on_record(f"n{number}", "x", None)
    answering._on_record("n0", "x", None)
    assert answering.destinations("x") == []
    answering.check_invariants()


def test_an_answer_is_safe_when_those_that_are_left_have_it() -> None:
    at = overlay()
    answering = FeedbackRouter(Channels(at))
    link(at, "b")
    event = TransitEvent("x", 0, 0, (), FEEDBACK, b"", qos=1, event=7, child="x", child_number=1)
    answering.send(event, ["a", "b"], "uav", 0)
    assert answering.unconfirmed() == [7]
    at.map.drop_link("a", "b")
    assert answering.unconfirmed() == [], "a has it, and b has failed"
    answering.send(
        TransitEvent("x", 0, 0, (), FEEDBACK, b"", qos=1, event=8, child="x"), ["b"], "u", 0
    )
    assert answering.unconfirmed() == [8], "nobody has it"
    assert at.store.of("a", CHILD) == {}
    answering.check_invariants()
