"""The policy set: everything an administrator decides, versioned; its parser and writer.

It is read from and written to TOML or JSON with the same fields; TOML is written with units. A
change creates a policy set with the next version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeGuard

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.core.model import former_names
from accord.core.model.errors import PolicyError
from accord.core.model.units import BANDWIDTHS_BPS, DURATIONS_MS, IMPORTANCES, render
from accord.core.policy import document_fields
from accord.core.policy.document_fields import NOTHING, decode, under
from accord.core.policy.policy import Policy
from accord.core.policy.policy_parser import policy_from
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


__all__ = [
    "STRATEGIES",
    "ClientLimit",
    "PolicySet",
    "document",
    "parse_policy_set",
    "parse_stored_policy_set",
    "policy_document",
    "policy_from",
    "policy_set_from",
    "render_policy_set",
    "with_policy",
    "with_settings",
    "with_version",
    "without_policy",
    "write_json",
]

STRATEGIES: Final = ("strict", "weighted fair", "laxity", "fifo")
DEFAULT_WEIGHTS: Final = tuple(2**importance for importance in range(IMPORTANCES))
MAX_POLICIES: Final = 100_000
MAX_LIMITS: Final = 100_000
MAX_WEIGHT: Final = 1_000_000
MAX_VERSION: Final = 2**53

_SETTINGS: Final = ("strategy", "shaping", "bandwidth", "client_bandwidth", "weights", "limits")
_LIMIT: Final = ("client", "bandwidth")


class ClientLimit(Struct, frozen=True):
    """Bandwidth limit of one client."""

    client: str
    bandwidth_bps: int


class PolicySet(Struct, frozen=True, kw_only=True):
    """`weights` are by importance; a bandwidth of None is no limit.

    `bandwidth_bps` applies to all clients together, `client_bandwidth_bps` to each without a limit
    of its own.
    """

    version: int = 0
    strategy: str = "weighted fair"
    shaping: bool = True
    bandwidth_bps: int | None = None
    client_bandwidth_bps: int | None = None
    weights: tuple[int, ...] = DEFAULT_WEIGHTS
    limits: tuple[ClientLimit, ...] = ()
    policies: tuple[Policy, ...] = ()

    def policy(self, name: str) -> Policy | None:
        return next((policy for policy in self.policies if policy.name == name), None)


def with_policy(policy_set: PolicySet, policy: Policy) -> PolicySet:
    """The next version, with `policy` replacing the one of its name, or appended."""
    policies = list(policy_set.policies)
    places = [place for place, each in enumerate(policies) if each.name == policy.name]
    if places:
        policies[places[0]] = policy
    elif len(policies) < MAX_POLICIES:
        policies.append(policy)
    else:
        raise PolicyError("policies", f"at most {MAX_POLICIES} accepted")
    return replace(policy_set, version=policy_set.version + 1, policies=tuple(policies))


def without_policy(policy_set: PolicySet, name: str) -> PolicySet:
    """The next version, without the policy of that name."""
    policies = tuple(policy for policy in policy_set.policies if policy.name != name)
    if len(policies) == len(policy_set.policies):
        raise PolicyError(f'policy "{name}"', "there is none of this name")
    return replace(policy_set, version=policy_set.version + 1, policies=policies)


def with_version(policy_set: PolicySet, version: int) -> PolicySet:
    return replace(policy_set, version=version)


def parse_policy_set(text: str, *, is_json: bool = False) -> PolicySet:
    """Parses a policy set; raises PolicyError at the first problem."""
    return policy_set_from(decode(text, is_json=is_json))


def parse_stored_policy_set(text: str) -> PolicySet:
    """Parses a stored version, which an earlier build may have written with former names."""
    stored = decode(text, is_json=False)
    if isinstance(stored, dict) and isinstance(strategy := stored.get("strategy"), str):
        stored["strategy"] = former_names.STRATEGIES.get(strategy, strategy)
    return policy_set_from(stored)


def policy_set_from(document: object) -> PolicySet:
    """Builds a policy set from a decoded TOML or JSON document."""
    given = document_fields.table(document, ("version", *_SETTINGS, "policies"), "")
    settings: dict[str, object] = {name: given[name] for name in _SETTINGS if name in given}
    policy_set = _with_settings(PolicySet(), settings)
    version = document_fields.integer(given.get("version", 0), 0, MAX_VERSION, "version")
    listed = document_fields.items(given.get("policies", []), "policies", MAX_POLICIES)
    policies = [policy_from(each, f"policies[{number}]") for number, each in enumerate(listed)]
    _check_names([policy.name for policy in policies], "policies", "name")
    return replace(policy_set, version=version, policies=tuple(policies))


def with_settings(policy_set: PolicySet, document: object) -> PolicySet:
    """The next version, with the settings in `document`; null removes a bandwidth."""
    if not isinstance(document, Mapping):
        raise PolicyError("settings", f"expected a table, got {document_fields.shown(document)}")
    document = dict(document)
    document_fields.table(document, _SETTINGS, "")
    return replace(_with_settings(policy_set, document), version=policy_set.version + 1)


def document(policy_set: PolicySet) -> dict[str, object]:
    """A document for JSON: bandwidths in bit/s, durations in ms, null for no limit."""
    return {
        "version": policy_set.version,
        "strategy": policy_set.strategy,
        "shaping": policy_set.shaping,
        "bandwidth": policy_set.bandwidth_bps,
        "client_bandwidth": policy_set.client_bandwidth_bps,
        "weights": list(policy_set.weights),
        "limits": [
            {"client": limit.client, "bandwidth": limit.bandwidth_bps}
            for limit in policy_set.limits
        ],
        "policies": [policy_document(policy) for policy in policy_set.policies],
    }


def write_json(policy_set: PolicySet) -> str:
    return msgspec.json.encode(document(policy_set)).decode()


def render_policy_set(policy_set: PolicySet) -> str:
    """Renders TOML, with units."""
    return write_toml(document(policy_set))


def _with_settings(policy_set: PolicySet, document: dict[str, object]) -> PolicySet:
    for field, value in document.items():
        if field in ("bandwidth", "client_bandwidth"):
            limit = document_fields.bandwidth(value, field)
            policy_set = (
                replace(policy_set, bandwidth_bps=limit)
                if field == "bandwidth"
                else replace(policy_set, client_bandwidth_bps=limit)
            )
        elif field == "strategy":
            policy_set = replace(policy_set, strategy=_strategy(value))
        elif field == "shaping":
            policy_set = replace(policy_set, shaping=document_fields.boolean(value, field))
        elif field == "weights":
            policy_set = replace(policy_set, weights=_weights(value))
        else:
            policy_set = replace(policy_set, limits=_limits(value))
    return policy_set


def _strategy(value: object) -> str:
    if isinstance(value, str) and value in former_names.STRATEGIES:
        problem = f'unknown strategy "{value}", renamed to "{former_names.STRATEGIES[value]}"'
        raise PolicyError("strategy", problem)
    return document_fields.choice(value, STRATEGIES, "strategy")


def _weights(value: object) -> tuple[int, ...]:
    listed = document_fields.items(value, "weights", IMPORTANCES)
    if len(listed) != IMPORTANCES:
        raise PolicyError("weights", f"expected {IMPORTANCES}, by importance, got {len(listed)}")
    return tuple(
        document_fields.integer(each, 1, MAX_WEIGHT, f"weights[{number}]")
        for number, each in enumerate(listed)
    )


def _limits(value: object) -> tuple[ClientLimit, ...]:
    listed = document_fields.items(value, "limits", MAX_LIMITS)
    limits = tuple(_limit(each, f"limits[{number}]") for number, each in enumerate(listed))
    _check_names([limit.client for limit in limits], "limits", "client")
    return limits


def _limit(value: object, place: str) -> ClientLimit:
    given = document_fields.table(value, _LIMIT, place)
    for field in _LIMIT:
        if field not in given:
            raise PolicyError(under(place, field), "expected, but missing")
    bandwidth_bps = document_fields.bandwidth(given["bandwidth"], under(place, "bandwidth"))
    if bandwidth_bps is None:
        raise PolicyError(under(place, "bandwidth"), "expected a bandwidth, or no limit at all")
    client = document_fields.pattern(given["client"], under(place, "client"))
    if "*" in client:
        problem = f"expected the name of one client, got {document_fields.shown(client)}"
        raise PolicyError(under(place, "client"), problem)
    return ClientLimit(client, bandwidth_bps)


def _check_names(names: list[str], place: str, field: str) -> None:
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        before = first.setdefault(name, number)
        if before != number:
            problem = f"{document_fields.shown(name)} is the name of {place}[{before}] already"
            raise PolicyError(f"{place}[{number}].{field}", problem)
