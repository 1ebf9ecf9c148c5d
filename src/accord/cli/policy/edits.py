"""Converts command options to changes of policies and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from accord.cli.errors import InputError
from accord.core.model.values import infer
from accord.core.policy.document_fields import NOTHING
from accord.core.policy.policy_set import PolicySet

_INTEGERS: Final = ("importance", "precedence")
_PREFERENCES: Final = ("deadline", "shaping")


def edited(fields: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """A policy's fields with the given changes; an empty value removes a field."""
    result = dict(fields)
    wanted = {name: value for name, value in given.items() if value is not None}
    for name, value in wanted.items():
        if name in _PREFERENCES:
            result["preferences"] = _preferred(result.get("preferences"), name, str(value))
        elif value in ("", [""]):
            result.pop(name, None)
        elif name in _INTEGERS:
            result[name] = _integer(name, str(value))
        elif name == "guarantee":
            result[name] = infer(str(value))  # a share is a number; the node checks everything else
        else:
            result[name] = value
    if not result.get("preferences", True):
        del result["preferences"]
    return result


def limit_settings(
    policy_set: PolicySet,
    node: str | None,
    each: str | None,
    client: tuple[str, str] | None,
    *,
    is_none: bool,
) -> dict[str, object]:
    """The settings that change; empty if nothing is given."""
    settings: dict[str, object] = {}
    limits: dict[str, object] = {limit.client: limit.bandwidth_bps for limit in policy_set.limits}
    if is_none:
        settings = {"bandwidth": None, "client_bandwidth": None, "limits": []}
        limits = {}
    if node is not None:
        settings["bandwidth"] = read_rate(node)
    if each is not None:
        settings["client_bandwidth"] = read_rate(each)
    if client is not None:
        name, rate = client
        if rate == NOTHING:
            limits.pop(name, None)
        else:
            limits[name] = read_rate(rate)
        settings["limits"] = [
            {"client": limited, "bandwidth": bandwidth} for limited, bandwidth in limits.items()
        ]
    return settings


def read_rate(rate: str) -> str | int:
    """As in a policy set: a plain number is in bits per second."""
    return int(rate) if rate.isascii() and rate.isdigit() and len(rate) < 16 else rate


def read_pairs(texts: Iterable[str], where: str) -> Iterable[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(where, f"expected NAME=VALUE, got {text!r}")
        yield name, value


def read_resources(texts: Iterable[str]) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for name, text in read_pairs(texts, "--resource"):
        value = infer(text)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError("--resource", f"expected a number for {name}, got {text!r}")
        found[name] = value
    return found


def _preferred(preferences: object, name: str, value: str) -> dict[str, object]:
    """The preferences as a table; a preset can't be edited."""
    if isinstance(preferences, str):
        problem = f"expected --preferences '' beside it, as {preferences} decides that"
        raise InputError(f"--{name}", problem)
    table: dict[str, object] = dict(preferences) if isinstance(preferences, dict) else {}
    if value:
        table[name] = value
    else:
        table.pop(name, None)
    return table


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--{name}", f"expected an integer, got {text!r}") from None
