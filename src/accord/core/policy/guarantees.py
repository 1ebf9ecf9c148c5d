"""What policies promise a subscription, when it is asked for.

A subscription is to many channels, and no event is there yet. So a policy counts whose channels
include all of the subscription's; of several the first in the order in which they decide.
"""

from __future__ import annotations

from accord.core.model.channels import filter_covers
from accord.core.policy.contexts import SUBSCRIBE
from accord.core.policy.entity import Entity
from accord.core.policy.policies import Policies


def guarantee_of(policies: Policies, entity: Entity, pattern: str) -> str | float | None:
    """ "none", "full" or a share; None where no policy says anything."""
    for rule in policies.guaranteeing:
        context = rule.context
        if not rule.operations & SUBSCRIBE or (rule.when and not rule.when & entity.holding):
            continue
        channels = context.channels
        if channels and not any(filter_covers(each, pattern) for each in channels):
            continue
        if context.selects(entity):
            return context.guarantee
    return None
