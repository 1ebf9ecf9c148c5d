from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given
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

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.policy import policies as policies_module
from accord.core.policy.policies import DEFAULT_GRANT, NO_SIDE, Entity, Grant, Policies
from accord.core.policy.policy import OPERATIONS
from accord.core.policy.policy_set import PolicySet, policy_from


def made(*documents: dict[str, object]) -> Policies:
    named = [{"name": f"p{number}", **each} for number, each in enumerate(documents)]
    return Policies(PolicySet(policies=tuple(policy_from(each) for each in named)))


def received(policies: Policies, channel: str, entity: Entity, matching: int = 0) -> Grant:
    view = policies.view(channel)
    return view.grant(NO_SIDE, view.receiver(entity), matching)


USING = st.builds(Using, st.just(""), ENTITIES, RESOURCES)


@given(
    POLICY_BOOKS,
    st.sampled_from(CHANNELS),
    st.lists(st.tuples(USING, USING, ATTRIBUTES, SIZES), min_size=1, max_size=6),
)
def test_agrees_with_a_loop_over_all_policies(
    book: PolicySet,
    channel: str,
    deliveries: list[tuple[Using, Using, Mapping[str, Value], int]],
) -> None:
    policies = Policies(book)
    view = policies.view(channel)
    for publishing, receiving, attributes, payload_bytes in deliveries:
        values = {**attributes, "payload_bytes": payload_bytes}
        for each in (publishing, receiving):
            each.entity.holding = policies.holding(each.resources, each.entity)
        publisher = view.publisher(publishing.entity)
        receiver = view.receiver(receiving.entity)
        query = view.query(receiving.entity)
        matching = view.matching(attributes, payload_bytes)
        publish = Using("publish", publishing.entity, publishing.resources)
        subscribe = Using("subscribe", receiving.entity, receiving.resources)
        asked = Using("query", receiving.entity, receiving.resources)
        for event, bits in ((values, matching), (None, 0)):
            expected = decided(book.policies, channel, [publish, subscribe], event)
            assert view.grant(publisher, receiver, bits) == expected
            assert view.publish_grant(publisher, bits) == decided(
                book.policies, channel, [publish], event
            )
            assert view.publish_grant(query, bits) == decided(
                book.policies, channel, [asked], event
            )


@given(POLICY_BOOKS, st.lists(st.tuples(st.sampled_from(CHANNELS), ENTITIES), min_size=1))
def test_remembering_little_changes_nothing(
    book: PolicySet, opened: list[tuple[str, Entity]]
) -> None:
    roomy = Policies(book)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_VIEWS", "MAX_CASES", "MAX_SIDES", "MAX_GRANTS", "MAX_CONCERNS"):
            patch.setattr(policies_module, name, 2)
        patch.setattr(policies_module, "_MAX_SIDES_OF_CASE", 1)
        tight = Policies(book)
        for channel, entity in opened:
            for resources in ({"link_kbps": 300}, {}):
                entity.holding = tight.holding(resources, entity)
                assert entity.holding == roomy.holding(resources, entity)
                assert received(tight, channel, entity) == received(roomy, channel, entity)
                matching = roomy.view(channel).matching({"platform": "UAV"}, 200)
                assert received(tight, channel, entity, matching) == received(
                    roomy, channel, entity, matching
                )


@given(POLICY_BOOKS, ENTITIES, RESOURCES, st.sampled_from(CHANNELS))
def test_what_holds_for_an_entity_is_all_it_depends_on(
    book: PolicySet, entity: Entity, resources: Mapping[str, Value], channel: str
) -> None:
    policies = Policies(book)
    own = policies.holding(resources, entity)
    everything = policies.holding(resources)
    assert own & everything == own
    view = policies.view(channel)
    entity.holding = own
    sides = [view.publisher(entity), view.receiver(entity), view.query(entity)]
    entity.holding = everything
    assert [view.publisher(entity), view.receiver(entity), view.query(entity)] == sides


def test_without_policies_everything_is_plain() -> None:
    view = Policies(PolicySet()).view("report")
    assert view.is_plain
    assert not view.has_conditions
    side = view.receiver(Entity("patrol-1"))
    assert side is NO_SIDE
    assert view.grant(view.publisher(Entity("uav-1")), side) is DEFAULT_GRANT
    assert (DEFAULT_GRANT.importance, DEFAULT_GRANT.is_replacing) == (3, True)


def test_only_the_channels_of_a_policy_are_touched() -> None:
    policies = made({"channel": "uav/#", "importance": 6})
    assert policies.view("report").is_plain
    assert received(policies, "uav/1/imagery", Entity("x")).importance == 6


def test_a_delivery_has_one_order_over_publisher_and_receiver() -> None:
    policies = made(
        {"operation": "publish", "client": "uav-1", "importance": 6, "precedence": 1},
        {"operation": "subscribe", "client": "patrol-1", "importance": 2, "preferences": "BFTrack"},
        {"operation": "subscribe", "client": "patrol-2", "importance": 7, "precedence": 2},
    )
    view = policies.view("report")
    publisher = view.publisher(Entity("uav-1"))
    first, second = view.receiver(Entity("patrol-1")), view.receiver(Entity("patrol-2"))
    assert view.grant(publisher, first) == Grant(6, 15_000, "", 0, 0, True, "p0")
    assert view.grant(publisher, second) == Grant(7, 0, "", 0, 0, True, "p2")
    assert view.publish_grant(publisher).importance == 6


def test_settings_are_decided_one_by_one() -> None:
    policies = made(
        {"client": "patrol-1", "preferences": {"replacement": False}},
        {"preferences": {"shaping": "scaling", "max_bytes": "40 KB", "deadline": "5 s"}},
        {"precedence": 1, "preferences": "FullImage"},
    )
    granted = received(policies, "report", Entity("patrol-1"))
    assert granted == Grant(3, 5_000, "", 0, 0, False, "p2")


def test_conditions_on_resources_count_while_they_hold() -> None:
    policies = made(
        {"when": "link_kbps < 500 AND cpu_percent < 90", "importance": 1, "precedence": 1},
        {"when": "link_kbps < 500", "client": "patrol-1", "importance": 2},
    )
    assert policies.node_resources == {"cpu_percent"}
    assert policies.client_resources == {"link_kbps"}
    entity = Entity("patrol-1")
    assert received(policies, "report", entity).importance == 3
    for resources, importance in (
        ({"link_kbps": 499}, 2),
        ({"link_kbps": 499, "cpu_percent": 89.5}, 1),
        ({"link_kbps": 500, "cpu_percent": 89.5}, 3),
        ({"cpu_percent": 89.5}, 3),
    ):
        entity.holding = policies.holding(resources, entity)
        assert received(policies, "report", entity).importance == importance


def test_conditions_are_only_evaluated_for_those_who_depend_on_them() -> None:
    policies = made(
        {"client": "patrol-1", "where": "payload_bytes > 100", "importance": 1},
        {"client": "patrol-2", "where": "platform = 'UAV'", "importance": 2},
    )
    view = policies.view("report")
    view.receiver(Entity("patrol-3"))
    assert (view.has_conditions, view.needs_attributes) == (False, False)
    side = view.receiver(Entity("patrol-1"))
    assert (view.has_conditions, view.needs_attributes) == (True, False)
    assert view.matching({"platform": "UAV"}, 101) == side.mask
    other = view.receiver(Entity("patrol-2"))
    assert (view.has_conditions, view.needs_attributes) == (True, True)
    assert view.matching({"platform": "UAV"}, 101) == side.mask | other.mask
    assert view.grant(NO_SIDE, other, other.mask).importance == 2
    assert view.grant(NO_SIDE, side, other.mask) is DEFAULT_GRANT


def test_a_condition_that_can_not_decide_is_not_asked() -> None:
    policies = made(
        {"precedence": 1, "importance": 5}, {"where": "payload_bytes > 100", "importance": 1}
    )
    view = policies.view("report")
    assert view.receiver(Entity("x")).mask == 0
    assert not view.has_conditions


def test_where_may_ask_the_document() -> None:
    policies = made({"where": "XPATH '/r/n > 5'", "importance": 1})
    view = policies.view("report")
    view.receiver(Entity("x"))
    assert view.needs_attributes
    assert view.matching({}, 0, Document(b"<r><n>7</n></r>")) != 0
    assert view.matching({}, 0) == 0


def test_the_size_of_the_payload_is_not_an_attribute_of_the_same_name() -> None:
    policies = made({"where": "payload_bytes > 100", "importance": 1})
    view = policies.view("report")
    view.receiver(Entity("x"))
    assert view.matching({"payload_bytes": 1_000}, 5) == 0


def test_equal_sides_are_one_object() -> None:
    policies = made({"client": "patrol-*", "importance": 6}, {"user": "ann", "importance": 1})
    first = policies.view("report").receiver(Entity("patrol-1"))
    assert policies.view("uav").publisher(Entity("patrol-2")) is first
    assert policies.view("uav").publisher(Entity("patrol-2", "ann")) is not first


def test_views_are_remembered() -> None:
    policies = made({"importance": 6})
    assert policies.view("report") is policies.view("report")


@given(POLICY_BOOKS, POLICY_BOOKS, RESOURCES)
@example(PolicySet(), PolicySet(), {})
def test_what_holds_is_carried_over_to_other_policies(
    old_book: PolicySet, new_book: PolicySet, resources: Mapping[str, Value]
) -> None:
    old, new = Policies(old_book), Policies(new_book)
    carried = new.translate(old, old.holding(resources))
    assert carried & new.holding(resources) == carried
    same = Policies(old_book)
    assert same.translate(old, old.holding(resources)) == same.holding(resources)


def test_all_operations_are_known_to_views() -> None:
    for operation in OPERATIONS:
        policies = made({"operation": operation, "importance": 7})
        view = policies.view("report")
        sides = [each(Entity("x")) for each in (view.publisher, view.receiver, view.query)]
        deciding = [name for name, side in zip(OPERATIONS, sides, strict=True) if side.rules]
        assert deciding == [operation]
