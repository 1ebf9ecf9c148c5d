from __future__ import annotations

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.policy_strategies import CHANNELS, ENTITIES, POLICY_BOOKS, RESOURCES, Using, decided

from accord.core.model.values import Value
from accord.core.policy.dry_run import Affected, OpenOperation, SettingChange, find_affected
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy import OPERATIONS
from accord.core.policy.policy_set import PolicySet, policy_from


def made(**documents: dict[str, object]) -> Policies:
    policies = [policy_from({"name": name, **each}) for name, each in documents.items()]
    return Policies(PolicySet(policies=tuple(policies)))


OPEN = [
    OpenOperation("subscribe", "report", Entity("patrol-1", "ann")),
    OpenOperation("subscribe", "report", Entity("patrol-2")),
    OpenOperation("publish", "report", Entity("patrol-1", "ann")),
]


def test_who_would_be_affected() -> None:
    old = made(all={"importance": 4})
    new = made(
        all={"importance": 4},
        one={
            "client": "patrol-1",
            "operation": "subscribe",
            "importance": 6,
            "preferences": "GeneralSurv",
        },
    )
    found = find_affected(old, new, OPEN)
    assert found == [
        Affected(
            operation="subscribe",
            channel="report",
            client="patrol-1",
            user="ann",
            policy_before="all",
            policy_after="one",
            changes=(
                SettingChange(setting="importance", before="4", after="6"),
                SettingChange(setting="deadline", before="none", after="5 s"),
                SettingChange(setting="shaping", before="none", after="scaling"),
            ),
            has_other_conditions=False,
        )
    ]
    assert msgspec.json.decode(msgspec.json.encode(found), type=list[Affected]) == found


def test_another_policy_that_says_the_same_affects_nobody() -> None:
    assert find_affected(made(a={"importance": 4}), made(b={"importance": 4}), OPEN) == []


def test_conditions_on_events_count() -> None:
    old = made(a={"importance": 4})
    new = made(a={"importance": 4}, b={"where": "speed > 3", "importance": 5, "client": "*-2"})
    (found,) = find_affected(old, new, OPEN)
    assert (found.client, found.changes, found.has_other_conditions) == ("patrol-2", (), True)


def test_conditions_on_resources_count_as_they_hold() -> None:
    old = made(a={"when": "link_kbps < 500", "importance": 4})
    new = made(
        b={"when": "500 > link_kbps", "importance": 5},
        c={"when": "link_kbps < 900", "importance": 6, "precedence": 1},
    )
    slow, fast = Entity("slow"), Entity("fast")
    slow.holding = old.holding({"link_kbps": 300})
    (known,) = find_affected(
        old, new, [OpenOperation("query", "x", slow), OpenOperation("query", "x", fast)]
    )
    assert (known.client, known.changes[0].after) == ("slow", "5")
    asked = [OpenOperation("query", "x", fast, {"link_kbps": 800})]
    assert find_affected(old, new, asked)[0].changes[0].after == "6"


@given(
    old=POLICY_BOOKS,
    new=POLICY_BOOKS,
    operation=st.sampled_from(OPERATIONS),
    channel=st.sampled_from(CHANNELS),
    entity=ENTITIES,
    resources=RESOURCES,
)
def test_tells_what_is_decided(
    *,
    old: PolicySet,
    new: PolicySet,
    operation: str,
    channel: str,
    entity: Entity,
    resources: Mapping[str, Value],
) -> None:
    found = find_affected(
        Policies(old), Policies(new), [OpenOperation(operation, channel, entity, resources)]
    )
    using = [Using(operation, entity, resources)]
    before, after = (decided(book.policies, channel, using) for book in (old, new))
    changes = {each.setting: (each.before, each.after) for one in found for each in one.changes}
    assert ("importance" in changes) is (before.importance != after.importance)
    assert ("deadline" in changes) is (before.deadline_ms != after.deadline_ms)
    assert ("replacement" in changes) is (before.is_replacing != after.is_replacing)
    if "importance" in changes:
        assert changes["importance"] == (str(before.importance), str(after.importance))
    assert (
        find_affected(Policies(old), Policies(old), [OpenOperation(operation, channel, entity)])
        == []
    )
