"""Checks that the shapers named by policies exist."""

from __future__ import annotations

from accord.core.model.errors import PolicyError
from accord.core.policy.policy_set import PolicySet
from accord.core.policy.preferences import NO_SHAPING
from accord.shaping.registry import names


def check_shapers(policy_set: PolicySet) -> None:
    """Raises PolicyError for the first policy that names an unknown shaper."""
    known = (NO_SHAPING, *names())
    for policy in policy_set.policies:
        name = (policy.resolved_preferences.shaping or NO_SHAPING).partition(":")[0].strip()
        if name not in known:
            place = f'policy "{policy.name}", preferences.shaping'
            raise PolicyError(place, f"expected one of {', '.join(known)}, got {name[:40]!r}")
