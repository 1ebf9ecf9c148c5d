from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policy_strategies import (
    ATTRIBUTES,
    CHANNELS,
    ENTITIES,
    POLICY_BOOKS,
    RESOURCES,
    SIZES,
    Using,
    decided,
)

from accord.core.model.errors import PolicyError
from accord.core.model.values import Value
from accord.core.policy.applicability import UnmetCondition
from accord.core.policy.explain import (
    Explanation,
    GrantedSettings,
    Overridden,
    SettingDecision,
    explain,
)
from accord.core.policy.policies import Entity, Grant, Policies
from accord.core.policy.policy_set import PolicySet, policy_from


def made(**documents: dict[str, object]) -> Policies:
    policies = [policy_from({"name": name, **each}) for name, each in documents.items()]
    return Policies(PolicySet(version=7, policies=tuple(policies)))


def grant_of(granted: GrantedSettings) -> Grant:
    return Grant(*(getattr(granted, name) for name in granted.__struct_fields__))


def decision(explanation: Explanation, setting: str) -> SettingDecision:
    return next(each for each in explanation.decisions if each.setting == setting)


PATROL = Entity("patrol-1", "ann", ("red",), "north")


def test_who_decides_and_who_is_overridden() -> None:
    policies = made(
        everybody={"importance": 1},
        channel={"channel": "report", "importance": 2},
        late={"channel": "report", "importance": 4},
        client={"channel": "+", "client": "patrol-1", "importance": 5, "preferences": "BFTrack"},
        urgent={"precedence": 3, "importance": 6},
        other={"client": "patrol-2", "importance": 7},
    )
    found = explain(policies, operation="subscribe", channel="report", entity=PATROL)
    assert (found.version, found.granted.importance, found.granted.policy) == (7, 6, "urgent")
    assert decision(found, "importance") == SettingDecision(
        setting="importance",
        value="6",
        policy="urgent",
        reason="precedence 3, above 0 of client",
        overridden=(
            Overridden(
                policy="client",
                value="5",
                rule="precedence",
                reason="precedence 0, below 3 of urgent",
            ),
            Overridden(
                policy="channel",
                value="2",
                rule="precedence",
                reason="precedence 0, below 3 of urgent",
            ),
            Overridden(
                policy="late",
                value="4",
                rule="precedence",
                reason="precedence 0, below 3 of urgent",
            ),
            Overridden(
                policy="everybody",
                value="1",
                rule="precedence",
                reason="precedence 0, below 3 of urgent",
            ),
        ),
    )
    assert decision(found, "deadline").value == "15 s"
    assert decision(found, "deadline").reason == "the only policy that applies and says it"
    assert decision(found, "shaping").policy == ""
    assert decision(found, "shaping").value == "none"
    assert [(each.policy, each.decides) for each in found.applying] == [
        ("urgent", ("importance",)),
        ("client", ("deadline",)),
        ("channel", ()),
        ("late", ()),
        ("everybody", ()),
    ]
    unmet = UnmetCondition(policy="other", condition="client", asked="patrol-2", found="patrol-1")
    assert (found.unmet, found.unmet_count) == ((unmet,), 1)


def test_rules_by_which_one_comes_before_the_other() -> None:
    policies = made(
        a={"client": "patrol-1", "importance": 1},
        b={"client": "patrol-1", "importance": 2},
        c={"client": "patrol-*", "importance": 3},
        d={"importance": 4},
    )
    found = decision(
        explain(policies, operation="publish", channel="report", entity=PATROL), "importance"
    )
    assert (found.policy, found.reason) == ("a", "as specific as b, and stands before it")
    assert [(each.policy, each.rule, each.reason) for each in found.overridden] == [
        ("b", "order", "as specific as a, and stands after it"),
        ("c", "specificity", "less specific: 0 exact names, against 1 of a"),
        ("d", "specificity", "less specific: 0 conditions, against 1 of a"),
    ]


def test_the_first_condition_that_is_not_met_is_named() -> None:
    policies = made(
        operation={"operation": ["publish", "query"], "client": "x", "importance": 1},
        channel={"channel": ["uav/#", "+/x"], "importance": 1},
        user={"user": "b*", "importance": 1},
        group={"group": ["blue", "green"], "importance": 1},
        node={"node": "south", "importance": 1},
        who={"who": "group <> 'red'", "importance": 1},
        when={"when": "link_kbps < 500 AND cpu_percent > 5", "importance": 1},
        where={"where": "payload_bytes > 20 AND platform = 'UAV'", "importance": 1},
    )
    found = explain(
        policies,
        operation="subscribe",
        channel="report",
        entity=PATROL,
        values={"platform": "ship"},
        payload_bytes=30,
        resources={"link_kbps": 800},
    )
    assert [(each.policy, each.asked, each.found) for each in found.unmet] == [
        (
            "where",
            "payload_bytes > 20 AND platform = 'UAV'",
            "payload_bytes = 30, platform = 'ship'",
        ),
        (
            "when",
            "link_kbps < 500 AND cpu_percent > 5",
            "cpu_percent = unknown, link_kbps = 800",
        ),
        ("who", "group <> 'red'", "client = patrol-1, user = ann, node = north, groups = red"),
        ("node", "south", "north"),
        ("group", "blue, green", "red"),
        ("user", "b*", "ann"),
        ("channel", "uav/#, +/x", "report"),
        ("operation", "publish, query", "subscribe"),
    ]
    assert all(each.policy == each.condition for each in found.unmet)
    few = explain(policies, operation="subscribe", channel="report", entity=PATROL, limit=1)
    assert (len(few.unmet), few.unmet_count) == (1, 7)
    assert few.unmet[0].found == "does not hold now"


def test_policies_that_depend_on_the_event_are_listed_apart() -> None:
    policies = made(
        large={"where": "payload_bytes > 20", "importance": 1, "preferences": "BFTrack"},
        small={"where": "payload_bytes <= 20", "importance": 2, "precedence": -1},
        all={"preferences": {"deadline": "1 min"}, "precedence": 1},
        rest={"importance": 4},
    )
    asked = {"operation": "publish", "channel": "report", "entity": PATROL}
    found = explain(policies, **asked)  # type: ignore[arg-type]
    assert found.granted.importance == 4
    assert [(each.policy, each.decides) for each in found.conditional] == [
        ("large", {"importance": "1"}),
        ("small", {}),
    ]
    event = explain(policies, values={}, payload_bytes=21, **asked)  # type: ignore[arg-type]
    assert event.granted.importance == 1
    assert event.conditional == ()
    assert [each.policy for each in event.unmet] == ["small"]


def test_a_delivery_has_two_sides() -> None:
    policies = made(
        sender={"operation": "publish", "client": "uav-1", "when": "backlog < 9", "importance": 6},
        receiver={"operation": "subscribe", "client": "patrol-1", "importance": 2},
        link={"operation": "publish", "when": "link_kbps < 500", "importance": 0},
    )
    found = explain(
        policies,
        operation="subscribe",
        channel="report",
        entity=PATROL,
        publisher=Entity("uav-1"),
        resources={"backlog": 3, "link_kbps": 300},
    )
    assert found.publisher == "uav-1"
    assert [(each.policy, each.operation) for each in found.applying] == [
        ("sender", "publish"),
        ("receiver", "subscribe"),
    ]
    assert found.granted.importance == 6
    # The link is that of the receiver.
    assert [(each.policy, each.condition) for each in found.unmet] == [("link", "when")]


@pytest.mark.parametrize(
    ("operation", "channel", "place"),
    [("read", "report", "operation"), ("query", "a/#", "channel"), ("query", "", "channel")],
)
def test_what_can_not_be_explained(operation: str, channel: str, place: str) -> None:
    with pytest.raises(PolicyError) as caught:
        explain(Policies(PolicySet()), operation=operation, channel=channel, entity=PATROL)
    assert caught.value.place == place


@given(
    book=POLICY_BOOKS,
    channel=st.sampled_from(CHANNELS),
    receiver=ENTITIES,
    publisher=ENTITIES,
    resources=RESOURCES,
    attributes=st.none() | ATTRIBUTES,
    payload_bytes=SIZES,
)
def test_explains_what_is_decided(
    *,
    book: PolicySet,
    channel: str,
    receiver: Entity,
    publisher: Entity,
    resources: Mapping[str, Value],
    attributes: Mapping[str, Value] | None,
    payload_bytes: int,
) -> None:
    policies = Policies(book)
    found = explain(
        policies,
        operation="subscribe",
        channel=channel,
        entity=receiver,
        publisher=publisher,
        values=attributes,
        payload_bytes=payload_bytes,
        resources=resources,
    )
    shared = {name: resources[name] for name in resources if name != "link_kbps"}
    sides = [Using("subscribe", receiver, resources), Using("publish", publisher, shared)]
    values = None if attributes is None else {**attributes, "payload_bytes": payload_bytes}
    assert grant_of(found.granted) == decided(book.policies, channel, sides, values)
    total = len(found.applying) + len(found.conditional) + found.unmet_count
    assert total == len(book.policies)
    named = [each.policy for each in found.applying]
    named += [each.policy for each in found.conditional]
    named += [each.policy for each in found.unmet]
    assert sorted(named) == sorted(policy.name for policy in book.policies)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Explanation) == found
    for each in found.decisions:
        decides = [one.policy for one in found.applying if each.setting in one.decides]
        assert decides == [each.policy] * bool(each.policy)
