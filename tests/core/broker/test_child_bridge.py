"""What children have their parent publish."""

from __future__ import annotations

from tests.core.broker.tier_net import TierNet

from accord.core.channels.channels import UNKNOWN
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.signalling import TransitEvent


def test_what_can_not_be_published_counts_by_one_cause() -> None:
    """Whatever its channel is called: there are names for a few causes only."""
    net = TierNet("a", {"x": "a"})
    node = net.nodes["a"]
    node.overlay.directory.create(ChannelDefinition("odd/#", template="nowhere"))
    for number in range(3):
        event = TransitEvent(
            "x", 1, number, (), f"odd/{number}", b"", child="x", child_number=number
        )
        assert net.children_of("a").publish_event(event, is_echoed=False) == 0
    assert node.broker.context.counters.shed_causes.counts == {UNKNOWN: 3}
