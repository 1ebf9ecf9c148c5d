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
from accord.operations.policies import PatchPolicies, PutPolicies, PutPolicy


def policies_by_phase(scenario: DemoScenario) -> list[PolicySet]:
    book, found = PolicySet(), []
    for plan in scenario.phases:
        for change in plan.changes:
            match change:
                case PutPolicies(toml=str(text)):
                    book = parse_policy_set(text)
                case PatchPolicies(settings=settings):
                    book = with_settings(book, settings)
                case PutPolicy(name=str(name), policy=fields):
                    body = json.loads(json.dumps(fields))
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
