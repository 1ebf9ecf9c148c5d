"""Compiled policies: the context as tests, the decisions as plain numbers.

The specificity of a context is four numbers, of which the first that differs counts:
- conditions: their number. A selector counts once for each part joined by AND;
- exact: number of conditions on names that exactly one name meets;
- lists: number of those that several listed names meet;
- levels: number of levels of the channel that a filter with wildcards spells out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from accord.core.policy.entity import Entity
from accord.core.policy.policy import OPERATIONS, Policy
from accord.core.policy.preferences import NO_SHAPING, Preferences
from accord.core.policy.selectors import EntitySelector, Selectors, parse_selectors
from accord.core.predicates.like import compile_pattern, normalise_pattern
from accord.core.predicates.predicate import Predicate

PUBLISH: Final = 1
SUBSCRIBE: Final = 2
QUERY: Final = 4
ANY_OPERATION: Final = 7
OPERATION_BITS: Final = dict(zip(OPERATIONS, (PUBLISH, SUBSCRIBE, QUERY), strict=True))

UNSET: Final = -1
# Bits of the settings that a policy decides.
IMPORTANCE: Final = 1
DEADLINE: Final = 2
SHAPING: Final = 4
REPLACEMENT: Final = 8
EVERYTHING: Final = 15

Specificity = tuple[int, int, int, int]
Order = tuple[int, int, int, int, int]

_LITERAL: Final = re.compile(r"[%_\\]")


class Names:
    """The names that meet a condition: listed ones, and those that match a pattern with `*`.

    A name that matches a pattern starts with one of the `prefixes`.
    """

    def __init__(self, given: tuple[str, ...]) -> None:
        self.exact: Final = frozenset(name for name in given if "*" not in name)
        self.prefixes: Final = frozenset(name.partition("*")[0] for name in given if "*" in name)
        self._patterns: Final = [_compile(name) for name in given if "*" in name]

    def select(self, name: str) -> bool:
        if name in self.exact:
            return True
        if name:
            for fits in self._patterns:
                if fits(name):
                    return True
        return False


def _compile(pattern: str) -> Callable[[str], bool]:
    like = _LITERAL.sub(r"\\\g<0>", pattern).replace("*", "%")
    return compile_pattern(normalise_pattern(like, "\\"))


class PolicyContext:
    """Conditions and decisions of one policy, independent of all others.

    A setting left to other policies is UNSAID, or None for `shaping`; `replacement` is 0 or 1.
    """

    def __init__(self, policy: Policy) -> None:
        selectors = parse_selectors(policy)
        asked = policy.resolved_preferences
        self.policy: Final = policy
        self.name: Final[str] = policy.name
        self.operations: Final[int] = _operations(policy.operation)
        self.channels: Final[tuple[str, ...]] = policy.channel
        self.client: Final[Names | None] = _names(policy.client)
        self.user: Final[Names | None] = _names(policy.user)
        self.group: Final[Names | None] = _names(policy.group)
        self.node: Final[Names | None] = _names(policy.node)
        self.who: Final[EntitySelector | None] = selectors.who
        self.where: Final[Predicate | None] = selectors.where
        self.when: Final[Predicate | None] = selectors.when
        self.resources: Final[frozenset[str]] = selectors.resources
        self.attributes: Final[frozenset[str]] = selectors.attributes
        self.needs_attributes: Final[bool] = selectors.needs_attributes
        self.specificity: Final[Specificity] = _specificity(policy, selectors)
        self.order: Final[Order] = _order(policy.precedence, self.specificity)
        self.importance: Final[int] = _or_unset(policy.importance)
        self.deadline_ms: Final[int] = _or_unset(asked.deadline_ms)
        self.shaping: Final[str | None] = _shaping(asked)
        self.max_bytes: Final[int] = asked.max_bytes or 0
        self.max_pixels: Final[int] = asked.max_pixels or 0
        self.replacement: Final[int] = _or_unset(asked.replacement)
        # Not one of the settings: those concern deliveries, this the admission of a subscription.
        self.guarantee: Final[str | float | None] = policy.guarantee
        self.settings: Final[int] = (
            IMPORTANCE * (self.importance != UNSET)
            | DEADLINE * (self.deadline_ms != UNSET)
            | SHAPING * (self.shaping is not None)
            | REPLACEMENT * (self.replacement != UNSET)
        )

    def selects(self, entity: Entity) -> bool:
        """Whether the entity meets the conditions on entities."""
        if self.client is not None and not self.client.select(entity.client):
            return False
        if self.user is not None and not self.user.select(entity.user):
            return False
        if self.group is not None and not _select_any(self.group, entity.groups):
            return False
        if self.node is not None and not self.node.select(entity.node):
            return False
        return self.who is None or self.who.selects(entity)


def _select_any(names: Names, groups: tuple[str, ...]) -> bool:
    return any(names.select(group) for group in groups)


def _operations(named: tuple[str, ...]) -> int:
    if not named:
        return ANY_OPERATION
    operations = 0
    for name in named:
        operations |= OPERATION_BITS[name]
    return operations


def _names(given: tuple[str, ...]) -> Names | None:
    return Names(given) if given else None


def _or_unset(value: int | None) -> int:
    return UNSET if value is None else int(value)


def _shaping(preferences: Preferences) -> str | None:
    return "" if preferences.shaping == NO_SHAPING else preferences.shaping


def _specificity(policy: Policy, selectors: Selectors) -> Specificity:
    names = (policy.operation, policy.client, policy.user, policy.group, policy.node)
    given = [(each, "*") for each in names if each]
    if policy.channel:
        given.append((policy.channel, "+#"))
    literal = [each for each, wildcards in given if not _has_any(each, wildcards)]
    exact = sum(1 for each in literal if len(set(each)) == 1)
    levels = min((_levels(channel) for channel in policy.channel), default=0)
    return (len(given) + selectors.conditions, exact, len(literal) - exact, levels)


def _has_any(names: tuple[str, ...], wildcards: str) -> bool:
    return any(wildcard in name for name in names for wildcard in wildcards)


def _order(precedence: int, specificity: Specificity) -> Order:
    """Sort key: the smallest comes first, and decides."""
    conditions, exact, lists, levels = specificity
    return (-precedence, -conditions, -exact, -lists, -levels)


def _levels(pattern: str) -> int:
    return sum(1 for level in pattern.split("/") if level not in ("+", "#"))
