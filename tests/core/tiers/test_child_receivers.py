"""What a parent remembers of its children's events."""

from __future__ import annotations

from accord.core.channels.channels import SHIPPED, Channels
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.router.router import Router
from accord.core.tiers.child_receivers import LINES, ChildReceivers
from accord.core.tiers.feedback_router import FeedbackRouter


def children() -> ChildReceivers:
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    overlay.directory.create(ChannelDefinition("room/#", template="reliable"))
    overlay.directory.create(ChannelDefinition("chat/#", options={"persistent": "true"}))
    channels = Channels(overlay, SHIPPED)
    return ChildReceivers(Router([], Policies(PolicySet())), channels, FeedbackRouter(channels))


def event(original: int, channel: str) -> TransitEvent:
    return TransitEvent("b", 1, 0, (), channel, b"", child="x", child_number=original)


def test_the_channels_in_use_are_remembered_longest() -> None:
    seen = children()
    for number in range(LINES):
        assert seen.is_new(event(number + 1, f"room/{number}"))
    assert seen.has_seen(event(1, "room/0"))  # which uses it
    assert seen.is_new(event(LINES + 1, "room/more"))
    assert seen.has_seen(event(1, "room/0"))
    assert not seen.has_seen(event(2, "room/1"))
    seen.check_invariants()


def test_the_next_event_of_a_channel_displaces_no_other() -> None:
    seen = children()
    for number in range(LINES):
        assert seen.is_new(event(number + 1, f"room/{number}"))
    assert seen.is_new(event(LINES + 1, "room/5"))
    assert seen.has_seen(event(1, "room/0"))


def test_a_child_gets_back_what_is_kept_of_it_by_whichever_parent() -> None:
    """Also where it came from another parent, which may fail before the child has it."""
    known = children()
    for channel, found in (("room/1", []), ("chat/1", ["x"])):
        known.interested.update(dict.fromkeys(["x"]))  # type: ignore[arg-type]
        assert known.receivers_of(event(1, channel)) == found
