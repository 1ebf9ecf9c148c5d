"""Converts a policy to a document of plain values, and such a document to TOML with units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeGuard

from accord.core.model.units import BANDWIDTHS_BPS, DURATIONS_MS, render
from accord.core.policy.document_fields import NOTHING
from accord.core.policy.policy import Policy
from accord.core.policy.preferences import Preferences

_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"
}  # fmt: skip


def policy_document(policy: Policy) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in Policy.__struct_fields__:
        value = getattr(policy, field)
        if isinstance(value, tuple):
            value = value[0] if len(value) == 1 else list(value)
        elif isinstance(value, Preferences):
            value = _preferences_document(value)
        if value not in ("", None, []) and (field, value) != ("precedence", 0):
            found[field] = value
    return found


def write_toml(document: Mapping[str, object]) -> str:
    """Renders a policy set's document; nulls are omitted, lists of tables come last."""
    tables = {key: value for key, value in document.items() if _is_tables(value)}
    blocks = [_block("", {key: document[key] for key in document if key not in tables})]
    for key, listed in tables.items():
        blocks += [_block(f"[[{key}]]", table) for table in listed]
    return "\n".join(blocks)


def _is_tables(value: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _preferences_document(preferences: Preferences) -> dict[str, object]:
    found: dict[str, object] = {
        "shaping": preferences.shaping,
        "max_bytes": preferences.max_bytes,
        "max_pixels": preferences.max_pixels,
        "deadline": preferences.deadline_ms,
        "replacement": preferences.replacement,
    }
    return {field: value for field, value in found.items() if value is not None}


def _block(heading: str, table: Mapping[str, object]) -> str:
    lines = [heading] if heading else []
    lines += [f"{key} = {_value(key, each)}" for key, each in table.items() if each is not None]
    return "\n".join(lines) + "\n"


def _value(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _number(key, value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(_value('', each) for each in value)}]"
    assert isinstance(value, dict)
    return f"{{ {', '.join(f'{name} = {_value(name, each)}' for name, each in value.items())} }}"


def _number(key: str, value: int) -> str:
    if key in ("bandwidth", "client_bandwidth"):
        return _quoted(render(value, BANDWIDTHS_BPS))
    if key == "deadline":
        return _quoted(render(value, DURATIONS_MS) if value else NOTHING)
    return str(value)


def _quoted(text: str) -> str:
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    is_control = character < " " or character == "\x7f"
    return f"\\u{ord(character):04x}" if is_control else character
