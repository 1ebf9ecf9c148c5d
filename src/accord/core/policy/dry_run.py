"""Dry run: the open operations that a change of policies would affect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from accord.core.model.values import Value
from accord.core.policy.document_fields import SETTINGS, granted_by, settings_of
from accord.core.policy.policies import NO_SIDE, Entity, Grant, Policies, PolicySide


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """An open operation of an entity on a channel (not on a filter).

    Without `resources`, conditions on them count as they hold for the entity now, and new ones do
    not hold.
    """

    operation: str
    channel: str
    entity: Entity
    resources: Mapping[str, Value] | None = None


class SettingChange(Struct, frozen=True, kw_only=True):
    """A setting before and after, in words."""

    setting: str
    before: str
    after: str


class Affected(Struct, frozen=True, kw_only=True):
    """An open operation whose outcome changes.

    `changes` are those for every event, with the policies that decide before and after.
    `has_other_conditions`: some events have further changes, because of conditions on events.
    """

    operation: str
    channel: str
    client: str
    user: str
    policy_before: str
    policy_after: str
    changes: tuple[SettingChange, ...]
    has_other_conditions: bool


def find_affected(old: Policies, new: Policies, open_: Iterable[OpenOperation]) -> list[Affected]:
    """Affected operations, in the order of `open_`."""
    found = (_compare(old, new, each) for each in open_)
    return [each for each in found if each is not None]


def _compare(old: Policies, new: Policies, operation: OpenOperation) -> Affected | None:
    entity, resources = operation.entity, operation.resources
    if resources is None:
        before_holding, after_holding = entity.holding, new.translate(old, entity.holding)
    else:
        before_holding = old.holding(resources, entity)
        after_holding = new.holding(resources, entity)
    before_side, before = _outcome(old, operation, before_holding)
    after_side, after = _outcome(new, operation, after_holding)
    was, will = granted_by(before), granted_by(after)
    changes = tuple(
        SettingChange(setting=setting, before=was[setting], after=will[setting])
        for setting in SETTINGS
        if was[setting] != will[setting]
    )
    has_other_conditions = _conditional(before_side) != _conditional(after_side)
    if not changes and not has_other_conditions:
        return None
    return Affected(
        operation=operation.operation,
        channel=operation.channel,
        client=entity.client,
        user=entity.user,
        policy_before=before.policy,
        policy_after=after.policy,
        changes=changes,
        has_other_conditions=has_other_conditions,
    )


def _outcome(
    policies: Policies, operation: OpenOperation, holding: int
) -> tuple[PolicySide, Grant]:
    """The outcome for events that meet no condition."""
    view = policies.view(operation.channel)
    entity = operation.entity.with_holding(holding)
    if operation.operation == "publish":
        side = view.publisher(entity)
    elif operation.operation == "subscribe":
        side = view.receiver(entity)
    else:
        side = view.query(entity)
    return side, view.grant(NO_SIDE, side)


def _conditional(side: PolicySide) -> list[tuple[str, dict[str, str]]]:
    return [
        (str(rule.context.where), settings_of(rule.context)) for rule in side.rules if rule.where
    ]
