"""Conditions of policies: which of them hold, and the first that an operation does not meet.

Each distinct condition of a policy set has a bit that is set while it holds. For explanations,
`first_unmet` also returns the actual value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from accord.core.model.channels import filter_selects
from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.policy.contexts import OPERATION_BITS, Names
from accord.core.policy.entity import Entity
from accord.core.policy.policy import PAYLOAD_BYTES
from accord.core.policy.rules import Rule
from accord.core.predicates.predicate import Predicate
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


def first_unmet(rule: Rule, facts: OperationFacts) -> UnmetCondition | None:
    """Returns None if the policy applies, or would apply to some event."""
    context, policy = rule.context, rule.context.policy
    entity = facts.entity
    if not context.operations & OPERATION_BITS[facts.operation]:
        return _unmet(rule, "operation", _listed(policy.operation), facts.operation)
    if policy.channel and not any(filter_selects(each, facts.channel) for each in policy.channel):
        return _unmet(rule, "channel", _listed(policy.channel), facts.channel)
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
    if rule.when and not rule.when & facts.holding:
        return _unmet(rule, "when", policy.when, _resources(rule, facts))
    values, where = facts.values, context.where
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


def _resources(rule: Rule, facts: OperationFacts) -> str:
    if facts.resources is None:
        return "does not hold now"
    return _values(sorted(rule.context.resources), facts.resources)


def _attributes(rule: Rule, values: Mapping[str, Value]) -> str:
    names = sorted(rule.context.attributes)
    return _values(names, values) if names else f"{PAYLOAD_BYTES} = {values[PAYLOAD_BYTES]}"


def _values(names: list[str], values: Mapping[str, Value]) -> str:
    found = (values.get(name) for name in names)
    return ", ".join(
        f"{name} = {'unknown' if value is None else render_value(value)}"
        for name, value in zip(names, found, strict=True)
    )


class Condition:
    """One condition; policies with equal canonical conditions share its bit."""

    def __init__(self, bit: int, predicate: Predicate) -> None:
        self.bit: Final = bit
        self.predicate: Final = predicate


class Conditions:
    """Conditions by canonical text."""

    def __init__(self) -> None:
        self._by_text: dict[str, Condition] = {}

    def add(self, predicate: Predicate | None) -> int:
        """Returns the bit of `predicate`, 0 for None."""
        if predicate is None:
            return 0
        text = str(predicate)
        condition = self._by_text.get(text)
        if condition is None:
            condition = Condition(1 << len(self._by_text), predicate)
            self._by_text[text] = condition
        return condition.bit

    def get(self, predicate: Predicate) -> Condition:
        """The condition of a predicate that was added."""
        return self._by_text[str(predicate)]

    def all(self) -> list[Condition]:
        return list(self._by_text.values())

    @property
    def is_empty(self) -> bool:
        return not self._by_text

    def translate(self, others: Conditions, holding: int) -> int:
        """Translates the bits of `others` to these; a condition that they lack does not hold."""
        bits = 0
        for text, condition in self._by_text.items():
            other = others._by_text.get(text)
            if other is not None and other.bit & holding:
                bits |= condition.bit
        return bits


def bits_of(
    conditions: Iterable[Condition], values: Mapping[str, Value], document: Document | None = None
) -> int:
    """The bits of conditions that are true; unknown does not count."""
    bits = 0
    for condition in conditions:
        if condition.predicate.evaluate(values, document) is True:
            bits |= condition.bit
    return bits
