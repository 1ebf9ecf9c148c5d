from __future__ import annotations

from collections import Counter

from accord.core.channels.members import Rendezvous, rendezvous
from accord.core.overlay.link_state import LinkStateMap

NODES = [f"n{number}" for number in range(10)]


def test_channels_are_spread_over_nodes() -> None:
    counts = Counter(rendezvous(f"channel/{number}", NODES) for number in range(1_000))
    assert len(counts) == 10
    assert min(counts.values()) > 50


def test_when_a_node_fails_only_its_channels_move() -> None:
    channels = [f"channel/{number}" for number in range(200)]
    before = {channel: rendezvous(channel, NODES) for channel in channels}
    after = {channel: rendezvous(channel, NODES[1:]) for channel in channels}
    moved = [channel for channel in channels if before[channel] != after[channel]]
    assert moved == [channel for channel in channels if before[channel] == "n0"]


def test_who_can_not_be_reached_is_none() -> None:
    net = LinkStateMap()
    for one, other in (("a", "b"), ("b", "c")):
        net.set_link(one, other, 1, 0.0, True, 0.0)
        net.set_link(other, one, 1, 0.0, True, 0.0)
    seen = Rendezvous("a", net)
    assert seen.nodes() == ["a", "b", "c"]
    first = seen.of("chat")
    assert first == rendezvous("chat", "abc")
    net.drop_link("a", "b")
    assert seen.of("chat") == "a"
    net.set_link("a", "b", 1, 0.0, True, 0.0)
    assert seen.of("chat") == first
    seen.check_invariants()


def test_a_node_alone_is_its_own() -> None:
    assert Rendezvous("a", LinkStateMap()).of("chat") == "a"
