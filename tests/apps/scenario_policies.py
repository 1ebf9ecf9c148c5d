"""The policies that are active in each phase of a scenario, and what they grant."""

from __future__ import annotations

import json

from accord.apps.demonstrations.scenario import DemoScenario, Sample
from accord.core.policy.entity import Entity
from accord.core.policy.grants import Grant
from accord.core.policy.policies import Policies
from accord.core.policy.policy_set import (
    PolicySet,
    parse_policy_set,
    policy_from,
    with_policy,
    with_settings,
)


def policies_by_phase(scenario: DemoScenario) -> list[PolicySet]:
    book, found = PolicySet(), []
    for plan in scenario.phases:
        for change in plan.changes:
            if isinstance(change.body, str):
                book = parse_policy_set(change.body)
            elif change.method == "PATCH":
                book = with_settings(book, change.body)
            else:
                name = change.path.removeprefix("/")
                body = json.loads(json.dumps(change.body))
                book = with_policy(book, policy_from(body, name=name))
        found.append(book)
    return found


def granted(book: PolicySet, channel: str, publisher: str, sample: Sample | None = None) -> Grant:
    """For an event of the publisher, as the scenario's receiver gets it."""
    view = Policies(book).view(channel)
    sides = view.publisher(Entity(publisher, "", (), "node")), view.receiver(_RECEIVER)
    matching = 0 if sample is None else view.matching(sample.attributes, len(sample.payload))
    return view.grant(*sides, matching)


_RECEIVER = Entity("receiver", "", (), "node")
