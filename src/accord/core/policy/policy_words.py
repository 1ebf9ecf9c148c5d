"""Policies in words: when they apply, and what they grant."""

from __future__ import annotations

from collections.abc import Iterable

from accord.core.model.units import BANDWIDTHS_BPS, DURATIONS_MS, SIZES, render
from accord.core.policy.document_fields import guarantee_text
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import PolicySet
from accord.core.policy.preferences import Preferences


def context_words(policy: Policy) -> str:
    """When it applies."""
    parts = [" or ".join(policy.operation)]
    parts += _named("on", policy.channel)
    for kind in ("client", "user", "group", "node"):
        parts += _named(f"{kind}", getattr(policy, kind))
    for kind in ("who", "where", "when"):
        if condition := getattr(policy, kind):
            parts.append(f"{kind} {condition}")
    return ", ".join(filter(None, parts)) or "always"


def effect_words(policy: Policy) -> str:
    """What it grants."""
    parts = [] if policy.importance is None else [f"importance {policy.importance}"]
    if isinstance(policy.preferences, str):
        parts.append(policy.preferences)
    elif policy.preferences is not None:
        parts += preference_words(policy.preferences)
    if policy.guarantee is not None:
        parts.append(f"guarantee {guarantee_text(policy.guarantee)}")
    return ", ".join(parts) or "nothing"


def preference_words(preferences: Preferences) -> list[str]:
    words = []
    if preferences.shaping is not None:
        words.append(shaping_words(preferences.shaping))
    if preferences.max_bytes is not None:
        words.append(f"at most {render(preferences.max_bytes, SIZES)}")
    if preferences.max_pixels is not None:
        words.append(f"at most {preferences.max_pixels:,} pixels")
    if preferences.deadline_ms is not None:
        words.append(deadline_words(preferences.deadline_ms))
    if preferences.replacement is not None:
        words.append("newer replaces older" if preferences.replacement else "no replacement")
    return words


def shaping_words(shaping: str) -> str:
    return "no shaping" if shaping in ("", "none") else f"shaping by {shaping}"


def deadline_words(deadline_ms: int) -> str:
    return f"within {render(deadline_ms, DURATIONS_MS)}" if deadline_ms else "no deadline"


def limit_words(policy_set: PolicySet) -> str:
    parts = []
    if policy_set.bandwidth_bps is not None:
        parts.append(f"the node {rate_words(policy_set.bandwidth_bps)}")
    if policy_set.client_bandwidth_bps is not None:
        parts.append(f"each client {rate_words(policy_set.client_bandwidth_bps)}")
    parts += [f"{limit.client} {rate_words(limit.bandwidth_bps)}" for limit in policy_set.limits]
    return "; ".join(parts) or "none"


def rate_words(rate_bps: int) -> str:
    return render(rate_bps, BANDWIDTHS_BPS)


def _named(kind: str, names: Iterable[str]) -> list[str]:
    text = " or ".join(names)
    return [f"{kind} {text}"] if text else []
