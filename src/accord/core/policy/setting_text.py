"""The four settings that policies decide, in words: for explanations and dry runs."""

from __future__ import annotations

from typing import Final

from accord.core.model.units import DURATIONS_MS, render
from accord.core.policy.contexts import UNSET, PolicyContext
from accord.core.policy.grants import Grant

GUARANTEE: Final = "guarantee"  # of subscriptions, if a policy decides it
SETTINGS: Final = ("importance", "deadline", "shaping", "replacement")


def settings_of(context: PolicyContext) -> dict[str, str]:
    """Each setting that a policy decides, in words."""
    said: dict[str, str] = {}
    if context.importance != UNSET:
        said["importance"] = str(context.importance)
    if context.deadline_ms != UNSET:
        said["deadline"] = _deadline(context.deadline_ms)
    if context.shaping is not None:
        said["shaping"] = _shaping(context.shaping, context.max_bytes, context.max_pixels)
    if context.replacement != UNSET:
        said["replacement"] = _replacement(context.replacement == 1)
    if context.guarantee is not None:
        said[GUARANTEE] = guarantee_text(context.guarantee)
    return said


def granted_by(grant: Grant) -> dict[str, str]:
    return {
        "importance": str(grant.importance),
        "deadline": _deadline(grant.deadline_ms),
        "shaping": _shaping(grant.shaping, grant.max_bytes, grant.max_pixels),
        "replacement": _replacement(grant.is_replacing),
    }


def guarantee_text(guarantee: str | float) -> str:
    return guarantee if isinstance(guarantee, str) else f"{100 * guarantee:g} %"


def _deadline(deadline_ms: int) -> str:
    return render(deadline_ms, DURATIONS_MS) if deadline_ms else "none"


def _shaping(shaping: str, max_bytes: int, max_pixels: int) -> str:
    targets = [f"{max_bytes} bytes"] * bool(max_bytes) + [f"{max_pixels} pixels"] * bool(max_pixels)
    to = f", to at most {' and '.join(targets)}" if targets else ""
    return f"{shaping or 'none'}{to}"


def _replacement(is_replacing: bool) -> str:
    return "on" if is_replacing else "off"
