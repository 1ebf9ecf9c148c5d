"""Finds the first condition of a policy that an operation does not meet, and the actual value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from accord.core.model.channels import filter_selects
from accord.core.model.values import Value
from accord.core.policy.contexts import OPERATION_BITS, Names
from accord.core.policy.entity import Entity
from accord.core.policy.policy import PAYLOAD_BYTES
from accord.core.policy.rules import Rule
from accord.core.predicates.tree import render_value

# In order of evaluation.
CONDITIONS: Final = (
    "operation", "channel", "client", "user", "group", "node", "who", "when", "where"
)  # fmt: skip
_MAX_SHOWN: Final = 5


class UnmetCondition(Struct, frozen=True, kw_only=True):
    """A policy that does not apply: its first unmet condition, with expected and actual value."""

    policy: str
    condition: str
    asked: str
    found: str


class OperationFacts(Struct, frozen=True, kw_only=True):
    """An operation with all facts that conditions refer to; `values` None: no particular event."""

    operation: str
    channel: str
    entity: Entity
    holding: int
    values: Mapping[str, Value] | None
    resources: Mapping[str, Value] | None


def first_unmet(rule: Rule, asked: OperationFacts) -> UnmetCondition | None:
    """Returns None if the policy applies, or would apply to some event."""
    context, policy = rule.context, rule.context.policy
    entity = asked.entity
    if not context.operations & OPERATION_BITS[asked.operation]:
        return _unmet(rule, "operation", _listed(policy.operation), asked.operation)
    if policy.channel and not any(filter_selects(each, asked.channel) for each in policy.channel):
        return _unmet(rule, "channel", _listed(policy.channel), asked.channel)
    for condition, names, given, found in (
        ("client", context.client, policy.client, (entity.client,)),
        ("user", context.user, policy.user, (entity.user,)),
        ("group", context.group, policy.group, entity.groups),
        ("node", context.node, policy.node, (entity.node,)),
    ):
        if names is not None and not _is_met(names, found):
            return _unmet(rule, condition, _listed(given), _listed(found) or "none")
    if context.who is not None and not context.who.selects(entity):
        return _unmet(rule, "who", policy.who, _who(entity))
    if rule.when and not rule.when & asked.holding:
        return _unmet(rule, "when", policy.when, _resources(rule, asked))
    values, where = asked.values, context.where
    if where is not None and values is not None and where.evaluate(values) is not True:
        return _unmet(rule, "where", policy.where, _attributes(rule, values))
    return None


def _is_met(names: Names, found: tuple[str, ...]) -> bool:
    return any(names.select(name) for name in found)


def _unmet(rule: Rule, condition: str, asked: str, found: str) -> UnmetCondition:
    return UnmetCondition(policy=rule.context.name, condition=condition, asked=asked, found=found)


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_MAX_SHOWN])
    return f"{shown} and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else shown


def _who(entity: Entity) -> str:
    known = {"client": entity.client, "user": entity.user, "node": entity.node}
    parts = [f"{name} = {value}" for name, value in known.items() if value]
    return ", ".join([*parts, f"groups = {_listed(entity.groups) or 'none'}"])


def _resources(rule: Rule, asked: OperationFacts) -> str:
    if asked.resources is None:
        return "does not hold now"
    return _values(sorted(rule.context.resources), asked.resources)


def _attributes(rule: Rule, values: Mapping[str, Value]) -> str:
    names = sorted(rule.context.attributes)
    return _values(names, values) if names else f"{PAYLOAD_BYTES} = {values[PAYLOAD_BYTES]}"


def _values(names: list[str], values: Mapping[str, Value]) -> str:
    found = (values.get(name) for name in names)
    return ", ".join(
        f"{name} = {'unknown' if value is None else render_value(value)}"
        for name, value in zip(names, found, strict=True)
    )
