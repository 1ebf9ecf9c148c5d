from __future__ import annotations

import pytest

from accord.core.model.errors import PolicyError
from accord.core.policy.explain import explain
from accord.core.policy.guarantees import guarantee_of
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy_set import parse_policy_set, render_policy_set

BOOK = """
[[policies]]
name = "somebody"
guarantee = 0.75
[[policies]]
name = "important ones"
user = "ann"
channel = "uav/#"
guarantee = "full"
[[policies]]
name = "the night"
client = "batch-*"
when = "cpu_percent > 50"
guarantee = "none"
[[policies]]
name = "publishers"
operation = "publish"
precedence = 9
guarantee = "none"
"""


def test_the_first_that_applies_to_all_of_the_subscription_decides() -> None:
    policies = Policies(parse_policy_set(BOOK))
    ann = Entity("raven", "ann")
    assert guarantee_of(policies, ann, "uav/+/image") == "full"
    assert guarantee_of(policies, ann, "uav/#") == "full"
    assert guarantee_of(policies, ann, "#") == 0.75
    assert guarantee_of(policies, Entity("raven"), "uav/#") == 0.75
    assert guarantee_of(Policies(parse_policy_set("")), ann, "uav/#") is None


def test_resources_count() -> None:
    policies = Policies(parse_policy_set(BOOK))
    batch = Entity("batch-7")
    assert guarantee_of(policies, batch, "x") == 0.75
    batch.holding = policies.holding({"cpu_percent": 80})
    assert guarantee_of(policies, batch, "x") == "none"


def test_a_book_is_written_as_it_was_read() -> None:
    book = parse_policy_set(BOOK)
    assert parse_policy_set(render_policy_set(book)) == book


def test_it_is_explained() -> None:
    policies = Policies(parse_policy_set(BOOK))
    found = explain(policies, operation="subscribe", channel="uav/x", entity=Entity("r", "ann"))
    said = {each.setting: (each.value, each.policy) for each in found.decisions}
    assert said["guarantee"] == ("full", "important ones")
    assert said["importance"][1] == ""


@pytest.mark.parametrize("value", ["'half'", "1.5", "-0.1", "true", "[]"])
def test_other_guarantees_are_mistakes(value: str) -> None:
    with pytest.raises(PolicyError, match=r"none.*full.*0\.75"):
        parse_policy_set(f'[[policies]]\nname = "x"\nguarantee = {value}\n')


def test_events_can_not_decide_it() -> None:
    with pytest.raises(PolicyError, match="no where"):
        parse_policy_set('[[policies]]\nname = "x"\nguarantee = "full"\nwhere = "a > 1"\n')
