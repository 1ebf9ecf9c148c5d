"""Explanations of an operation's or delivery's settings: which policy decided, over which, and why.

`explain` evaluates every policy with each of its conditions: slower than deciding, and independent
of the index used for that. Its result is serialised to JSON as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from accord.core.model.channels import problem_with_channel
from accord.core.model.errors import PolicyError
from accord.core.model.values import Value
from accord.core.policy.applicability import CONDITIONS, OperationFacts, UnmetCondition, first_unmet
from accord.core.policy.contexts import PolicyContext
from accord.core.policy.document_fields import GUARANTEE, SETTINGS, choice, granted_by, settings_of
from accord.core.policy.grants import Grant, decide
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy import NODE_RESOURCES, OPERATIONS, PAYLOAD_BYTES
from accord.core.policy.rules import Rule


class Specificity(Struct, frozen=True):
    """Specificity of a context; the first number that differs counts. See `contexts`."""

    conditions: int
    exact: int
    lists: int
    levels: int


class ApplicablePolicy(Struct, frozen=True, kw_only=True):
    """A policy that applies: to which operation, and which settings it decides."""

    policy: str
    operation: str
    precedence: int
    specificity: Specificity
    decides: tuple[str, ...]


class Conditional(Struct, frozen=True, kw_only=True):
    """A policy that applies to events that meet its `where`, and what it then decides."""

    policy: str
    operation: str
    where: str
    precedence: int
    specificity: Specificity
    decides: dict[str, str]


class Overridden(Struct, frozen=True, kw_only=True):
    """A policy that could have decided; `rule` is precedence, specificity or order."""

    policy: str
    value: str
    rule: str
    reason: str


class SettingDecision(Struct, frozen=True, kw_only=True):
    """One setting: its value, the policy that decided ("" for the default), and why that one."""

    setting: str
    value: str
    policy: str
    reason: str
    overridden: tuple[Overridden, ...]


class GrantedSettings(Struct, frozen=True, kw_only=True):
    """The decisions as numbers; 0 and "" mean none."""

    importance: int
    deadline_ms: int
    shaping: str
    max_bytes: int
    max_pixels: int
    is_replacing: bool
    policy: str


class Explanation(Struct, frozen=True, kw_only=True):
    """An explanation; `unmet` lists the policies closest to applying first, of `unmet_count`."""

    version: int
    operation: str
    channel: str
    client: str
    user: str
    groups: tuple[str, ...]
    node: str
    publisher: str
    granted: GrantedSettings
    decisions: tuple[SettingDecision, ...]
    applying: tuple[ApplicablePolicy, ...]
    conditional: tuple[Conditional, ...]
    unmet: tuple[UnmetCondition, ...]
    unmet_count: int


__all__ = ["Explanation", "explain"]

MAX_UNMET: Final = 100


def explain(  # noqa: PLR0913 - by keyword, most are left out
    policies: Policies,
    *,
    operation: str,
    channel: str,
    entity: Entity,
    publisher: Entity | None = None,
    values: Mapping[str, Value] | None = None,
    payload_bytes: int = 0,
    resources: Mapping[str, Value] | None = None,
    limit: int = MAX_UNMET,
) -> Explanation:
    """Explains an operation, or with a publisher, deliveries from it.

    `values` are those of one event; without them any event is meant. Conditions on resources count
    by `resources`, or by what holds for the entity now.
    """
    choice(operation, OPERATIONS, "operation")
    if problem := problem_with_channel(channel):
        raise PolicyError("channel", problem)
    known = None if values is None else {**values, PAYLOAD_BYTES: payload_bytes}
    asked = [_operation_facts(policies, operation, channel, entity, known, resources)]
    if publisher is not None:
        shared = _node_resources(resources)
        asked.append(_operation_facts(policies, "publish", channel, publisher, known, shared))
    sorting = _Sorting(policies.rules, asked)
    grant = _grant_of([rule for rule, _ in sorting.applying])
    decisions = tuple(
        _decision(setting, sorting.applying, grant)
        for setting in _settings(operation, sorting.applying)
    )
    return Explanation(
        version=policies.policy_set.version,
        operation=operation,
        channel=channel,
        client=entity.client,
        user=entity.user,
        groups=entity.groups,
        node=entity.node,
        publisher="" if publisher is None else publisher.client,
        granted=_granted(grant),
        decisions=decisions,
        applying=tuple(_applying(rule, side, decisions) for rule, side in sorting.applying),
        conditional=tuple(sorting.conditional),
        unmet=tuple(sorted(sorting.unmet, key=_closeness)[:limit]),
        unmet_count=len(sorting.unmet),
    )


def _settings(operation: str, applying: Sequence[tuple[Rule, str]]) -> tuple[str, ...]:
    """The settings to explain; the guarantee of a subscription only if a policy decides it."""
    has_guarantee = any(rule.context.guarantee is not None for rule, _ in applying)
    return (*SETTINGS, GUARANTEE) if has_guarantee and operation == "subscribe" else SETTINGS


def _operation_facts(  # noqa: PLR0913, PLR0917
    policies: Policies,
    operation: str,
    channel: str,
    entity: Entity,
    values: Mapping[str, Value] | None,
    resources: Mapping[str, Value] | None,
) -> OperationFacts:
    return OperationFacts(
        operation=operation,
        channel=channel,
        entity=entity,
        holding=entity.holding if resources is None else policies.holding(resources),
        values=values,
        resources=resources,
    )


def _node_resources(resources: Mapping[str, Value] | None) -> Mapping[str, Value] | None:
    """The resources that also apply to the publisher: link resources are the receiver's."""
    if resources is None:
        return None
    return {name: value for name, value in resources.items() if name in NODE_RESOURCES}


def _grant_of(applying: list[Rule]) -> Grant:
    matching = 0
    for rule in applying:
        matching |= rule.where
    return decide(applying, matching)


class _Sorting:
    """All rules, in order: those that apply, those that depend on the event, those that don't."""

    def __init__(self, rules: Sequence[Rule], asked: Sequence[OperationFacts]) -> None:
        self.applying: list[tuple[Rule, str]] = []
        self.conditional: list[Conditional] = []
        self.unmet: list[UnmetCondition] = []
        self._decided: set[str] = set()
        for rule in rules:
            found = [(first_unmet(rule, each), each) for each in asked]
            met = next((each for unmet, each in found if unmet is None), None)
            if met is None:
                unmet = min((unmet for unmet, _ in found if unmet is not None), key=_closeness)
                self.unmet.append(unmet)
            elif rule.where and met.values is None:
                self._add_conditional(rule, met.operation)
            else:
                self.applying.append((rule, met.operation))
                self._decided |= settings_of(rule.context).keys()

    def _add_conditional(self, rule: Rule, operation: str) -> None:
        context = rule.context
        settings = settings_of(context)
        self.conditional.append(
            Conditional(
                policy=context.name,
                operation=operation,
                where=context.policy.where,
                precedence=context.policy.precedence,
                specificity=Specificity(*context.specificity),
                decides={name: settings[name] for name in settings if name not in self._decided},
            )
        )


def _closeness(unmet: UnmetCondition) -> int:
    return -CONDITIONS.index(unmet.condition)


def _decision(setting: str, applying: Sequence[tuple[Rule, str]], grant: Grant) -> SettingDecision:
    rules = [
        (rule.context, settings[setting])
        for rule, _ in applying
        if setting in (settings := settings_of(rule.context))
    ]
    if not rules:
        value = granted_by(grant)[setting]
        reason = "no policy that applies says it, so the default counts"
        return SettingDecision(
            setting=setting, value=value, policy="", reason=reason, overridden=()
        )
    (first, value), *others = rules
    overridden = tuple(
        _overridden(_difference(first, context), context, settings) for context, settings in others
    )
    reason = "the only policy that applies and says it"
    if others:
        reason = _difference(first, others[0][0])[1]
    return SettingDecision(
        setting=setting, value=value, policy=first.name, reason=reason, overridden=overridden
    )


def _overridden(difference: tuple[str, str, str], context: PolicyContext, value: str) -> Overridden:
    rule, _, reason = difference
    return Overridden(policy=context.name, value=value, rule=rule, reason=reason)


def _difference(first: PolicyContext, other: PolicyContext) -> tuple[str, str, str]:
    """The criterion by which `first` precedes `other`, and its wording for each of them."""
    higher, lower = first.policy.precedence, other.policy.precedence
    if higher != lower:
        return (
            "precedence",
            f"precedence {higher}, above {lower} of {other.name}",
            f"precedence {lower}, below {higher} of {first.name}",
        )
    for what, more, less in zip(_MEASURES, first.specificity, other.specificity, strict=True):
        if more != less:
            return (
                "specificity",
                f"more specific: {more} {what}, against {less} of {other.name}",
                f"less specific: {less} {what}, against {more} of {first.name}",
            )
    return (
        "order",
        f"as specific as {other.name}, and stands before it",
        f"as specific as {first.name}, and stands after it",
    )


_MEASURES: Final = ("conditions", "exact names", "lists of names", "levels of the channel")


def _applying(rule: Rule, operation: str, decisions: Sequence[SettingDecision]) -> ApplicablePolicy:
    context = rule.context
    return ApplicablePolicy(
        policy=context.name,
        operation=operation,
        precedence=context.policy.precedence,
        specificity=Specificity(*context.specificity),
        decides=tuple(each.setting for each in decisions if each.policy == context.name),
    )


def _granted(grant: Grant) -> GrantedSettings:
    return GrantedSettings(
        importance=grant.importance,
        deadline_ms=grant.deadline_ms,
        shaping=grant.shaping,
        max_bytes=grant.max_bytes,
        max_pixels=grant.max_pixels,
        is_replacing=grant.is_replacing,
        policy=grant.policy,
    )
