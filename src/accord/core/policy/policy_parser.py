"""Parses a document into a policy; raises at the first problem, with its location."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from accord.core.model.errors import PolicyError
from accord.core.model.units import IMPORTANCES
from accord.core.policy import document_fields
from accord.core.policy.document_fields import under
from accord.core.policy.policy import ENTITY_NAMES, GUARANTEES, OPERATIONS, Policy
from accord.core.policy.preferences import NO_SHAPING, PRESETS, Preferences
from accord.core.policy.selectors import parse_selectors

MAX_PRECEDENCE: Final = 1_000_000
MAX_PIXELS: Final = 10**9

_PREFERENCES: Final = ("shaping", "max_bytes", "max_pixels", "deadline", "replacement")
_SHAPER: Final = re.compile(r"[A-Za-z][\w-]*", re.ASCII)


def policy_from(document: object, place: str = "policy", name: str | None = None) -> Policy:
    """Parses one policy; the document may omit its name if `name` is given."""
    given = document_fields.table(document, Policy.__struct_fields__, place)
    if name is not None and given.get("name", name) != name:
        raise PolicyError(under(place, "name"), f"expected {name!r}, or nothing")
    if name is None and "name" not in given:
        raise PolicyError(under(place, "name"), "expected, but missing")
    values: dict[str, object] = {
        field: _policy_field(field, given[field], under(place, field))
        for field in given
        if field != "name"
    }
    own_name = document_fields.name(given.get("name", name), under(place, "name"))
    policy = msgspec.convert({**values, "name": own_name}, Policy)
    if (
        policy.importance is None
        and policy.resolved_preferences.is_empty
        and policy.guarantee is None
    ):
        problem = "expected importance, preferences or a guarantee: it decides nothing"
        raise PolicyError(place, problem)
    if policy.guarantee is not None and policy.where:
        problem = "expected no where beside it: no event is there yet when it is decided"
        raise PolicyError(under(place, "guarantee"), problem)
    parse_selectors(policy)
    return policy


def _policy_field(field: str, value: object, place: str) -> object:
    if field == "operation":
        return document_fields.names(value, place, _operation)
    if field == "channel":
        return document_fields.names(value, place, document_fields.channel_filter)
    if field in ENTITY_NAMES:
        return document_fields.names(value, place, document_fields.pattern)
    if field == "precedence":
        return document_fields.integer(value, -MAX_PRECEDENCE, MAX_PRECEDENCE, place)
    if field == "importance":
        return document_fields.integer(value, 0, IMPORTANCES - 1, place)
    if field == "preferences":
        return _preferences(value, place)
    if field == "guarantee":
        return _guarantee(value, place)
    return document_fields.text(value, place)


def _guarantee(value: object, place: str) -> str | float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    if isinstance(value, str) and value in GUARANTEES:
        return value
    expected = 'expected "none", "full" or a share from 0 to 1, such as 0.75'
    raise PolicyError(place, f"{expected}, got {document_fields.shown(value)}")


def _operation(value: object, place: str) -> str:
    return document_fields.choice(value, OPERATIONS, place)


def _preferences(value: object, place: str) -> str | Preferences:
    if isinstance(value, str):
        return document_fields.choice(value, PRESETS, place)
    if not isinstance(value, dict):
        expected = f"a table or one of {', '.join(PRESETS)}"
        raise PolicyError(place, f"expected {expected}, got {document_fields.shown(value)}")
    given = document_fields.table(value, _PREFERENCES, place)
    preferences = Preferences()
    for field, each in given.items():
        preferences = _with_preference(preferences, field, each, under(place, field))
    has_targets = preferences.max_bytes is not None or preferences.max_pixels is not None
    if has_targets and preferences.shaping in (None, NO_SHAPING):
        problem = 'expected beside max_bytes or max_pixels, such as "scaling"'
        raise PolicyError(under(place, "shaping"), problem)
    return preferences


def _with_preference(
    preferences: Preferences, field: str, value: object, place: str
) -> Preferences:
    if field == "deadline":
        return replace(preferences, deadline_ms=document_fields.duration(value, place))
    if field == "replacement":
        return replace(preferences, replacement=document_fields.boolean(value, place))
    if field == "max_bytes":
        return replace(preferences, max_bytes=document_fields.size(value, place))
    if field == "max_pixels":
        return replace(preferences, max_pixels=document_fields.integer(value, 1, MAX_PIXELS, place))
    return replace(preferences, shaping=_shaping(value, place))


def _shaping(value: object, place: str) -> str:
    text = document_fields.name(value, place, document_fields.MAX_TEXT)
    shaper = text.partition(":")[0].strip()
    if not _SHAPER.fullmatch(shaper):
        raise PolicyError(place, f'expected "none" or a shaper, got {document_fields.shown(value)}')
    return NO_SHAPING if text.strip() == NO_SHAPING else text
