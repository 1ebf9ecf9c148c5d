from __future__ import annotations

import pytest
from tests.core.router.test_router import message

from accord.core.overlay.interests import Interest
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.router.fan_out import PublisherFanOut
from accord.core.router.remote_interests import RemoteInterests
from accord.core.router.router import Router


def remotes() -> RemoteInterests:
    return RemoteInterests(Router([], Policies(PolicySet())))


def wanted(of: RemoteInterests, channel: str) -> list[str]:
    """The nodes that an event is for."""
    of.router.publish(message(channel), PublisherFanOut(Entity("p"), of.router.fan_out(channel)))
    found = list(of.interested)
    of.interested.clear()
    of.router.check_invariants()
    return found


def test_a_node_gets_what_it_needs_until_it_takes_that_back() -> None:
    known = remotes()
    known.set_interest("b", "1", Interest("uav/#"))
    assert wanted(known, "uav/1") == ["b"]
    assert wanted(known, "lab/1") == []
    known.set_interest("b", "1", None)
    assert wanted(known, "uav/1") == []
    assert known.nodes == {}


@pytest.mark.parametrize("where", ["", "this can't be read ("])
def test_a_node_that_began_anew_may_say_the_same_under_another_key(where: str) -> None:
    """And takes back afterwards what it said before."""
    known = remotes()
    known.set_interest("b", "2", Interest("uav/#"))
    known.set_interest("b", "1", Interest("uav/#", where))
    known.set_interest("b", "2", None)
    assert wanted(known, "uav/1") == ["b"]
    known.set_interest("b", "1", Interest("uav/1", where))
    assert wanted(known, "uav/1") == ["b"]
    assert wanted(known, "uav/2") == []
    known.set_interest("b", "1", None)
    assert wanted(known, "uav/1") == []
    assert known.nodes == {}


def test_the_same_need_again_under_its_key_changes_nothing() -> None:
    known = remotes()
    for _ in range(2):
        known.set_interest("b", "1", Interest("uav/#"))
        known.set_interest("b", "2", Interest("uav/#", "altitude > 5"))
    assert wanted(known, "uav/1") == ["b"]
    known.set_interest("b", "1", None)
    known.set_interest("b", "2", None)
    assert known.nodes == {}
    assert known.router.size == 0


def test_long_predicates_are_read_when_it_is_their_turn() -> None:
    known = remotes()
    known.batch_characters = 20
    known.parse_next()
    known.set_interest("b", "1", Interest("uav/1", "a = 'something long'"))
    known.set_interest("b", "2", Interest("uav/2", "a = 1"))
    known.set_interest("b", "3", Interest("uav/3", "a = 1"))
    known.set_interest("b", "4", Interest("uav/4", xpath="/a = 'another long one'"))
    known.set_interest("b", "5", Interest("uav/5"))
    assert [wanted(known, f"uav/{each}") for each in range(1, 6)] == [
        [],
        ["b"],
        ["b"],
        ["b"],
        ["b"],
    ]
    known.set_interest("b", "2", None)
    assert known.has_unparsed()
    known.parse_next()
    assert [wanted(known, f"uav/{each}") for each in range(1, 6)] == [[], [], [], ["b"], ["b"]]
    known.set_interest("c", "1", Interest("uav/1", "this does not fit"))
    assert wanted(known, "uav/1") == ["c"]
    known.parse_next()
    assert wanted(known, "uav/4") == [], "one is always read"
    known.parse_next()
    assert not known.has_unparsed()
    for node, key in (("b", "1"), ("b", "3"), ("b", "4"), ("b", "5"), ("c", "1")):
        known.set_interest(node, key, None)
    assert known.nodes == {}
