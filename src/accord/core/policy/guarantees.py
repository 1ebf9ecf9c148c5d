"""The guarantee that policies give a subscription on admission.

A subscription covers many channels, and there is no event yet. So a policy counts only if its
channels include all of the subscription's; of several the first in order decides.
"""

from __future__ import annotations

from accord.core.model.channels import filter_covers
from accord.core.policy.contexts import SUBSCRIBE
from accord.core.policy.entity import Entity
from accord.core.policy.policies import Policies


def guarantee_of(policies: Policies, entity: Entity, pattern: str) -> str | float | None:
    """Returns "none", "full" or a share; None if no policy decides it."""
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
