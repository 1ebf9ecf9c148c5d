"""Policies in the order in which they decide, indexed by the entities they apply to.

Of all policies that apply, the first in this order that sets a setting decides it: the one with the
higher precedence; of equal ones the more specific; of equally specific ones the first in the policy
set. `rank` is the index in this order, so later comparisons are between integers.

A rule is indexed by a name that it requires: an exact one if possible, of client, user, group or
node in this order of preference; else by the prefix of a pattern. Only rules that require no name
are tried one by one.
"""

from __future__ import annotations

from typing import Final

from accord.core.policy.contexts import EVERYTHING, Order, PolicyContext
from accord.core.policy.entity import Entity
from accord.core.policy.policy import ENTITY_NAMES


class Rule:
    """A policy's context with its rank.

    `when` and `where` are the bits of these conditions, 0 if there is none.
    """

    def __init__(self, context: PolicyContext, rank: int, when: int, where: int) -> None:
        self.context: Final = context
        self.operations: Final[int] = context.operations
        self.settings: Final[int] = context.settings
        self.rank: Final = rank
        self.when: Final = when
        self.where: Final = where


class _NameIndex:
    """Rules by a name that they require, or by its prefix."""

    def __init__(self) -> None:
        self._exact: dict[str, list[Rule]] = {}
        self._by_prefix: dict[str, list[Rule]] = {}
        self._lengths: list[int] = []

    def add(self, exact: frozenset[str], prefixes: frozenset[str], rule: Rule) -> None:
        for name in exact:
            self._exact.setdefault(name, []).append(rule)
        for prefix in prefixes:
            self._by_prefix.setdefault(prefix, []).append(rule)
            if len(prefix) not in self._lengths:
                self._lengths.append(len(prefix))

    def find(self, name: str, operations: int, found: dict[int, Rule]) -> None:
        rules = self._exact.get(name)
        if rules is not None:
            _add(rules, operations, found)
        for length in self._lengths:
            rules = self._by_prefix.get(name[:length])
            if rules is not None:
                _add(rules, operations, found)


class RuleIndex:
    """Rules by the entities they apply to."""

    def __init__(self) -> None:
        self.is_empty = True
        self._by_client = _NameIndex()
        self._by_user = _NameIndex()
        self._by_group = _NameIndex()
        self._by_node = _NameIndex()
        self._tried: list[Rule] = []

    def add(self, rule: Rule) -> None:
        self.is_empty = False
        context = rule.context
        indexes = [self._by_client, self._by_user, self._by_group, self._by_node]
        asked = [context.client, context.user, context.group, context.node]
        for names, index in zip(asked, indexes, strict=True):
            if names is not None and not names.prefixes:
                index.add(names.exact, names.prefixes, rule)
                return
        required = None if context.who is None else context.who.required
        if required is not None:
            name, exact = required
            indexes[ENTITY_NAMES.index(name)].add(exact, frozenset(), rule)
            return
        for names, index in zip(asked, indexes, strict=True):
            if names is not None:
                index.add(names.exact, names.prefixes, rule)
                return
        self._tried.append(rule)

    def find(self, entity: Entity, operations: int, found: dict[int, Rule]) -> None:
        """Adds rules that may apply to `entity` and one of `operations` to `found`, by rank.

        The caller checks whether a rule really applies, if that matters.
        """
        _add(self._tried, operations, found)
        self._by_client.find(entity.client, operations, found)
        self._by_user.find(entity.user, operations, found)
        for group in entity.groups:
            self._by_group.find(group, operations, found)
        self._by_node.find(entity.node, operations, found)


def sort_contexts(contexts: list[PolicyContext]) -> list[PolicyContext]:
    """Sorts contexts in the order in which they decide; ties keep the order of the policy set."""
    return sorted(contexts, key=_order_of)


def _order_of(context: PolicyContext) -> Order:
    return context.order


def select_rules(found: dict[int, Rule], entity: Entity) -> list[Rule]:
    """Rules that apply to `entity`, in order, up to the point where every setting is decided."""
    rules: list[Rule] = []
    decided = 0
    for rank in sorted(found):
        rule = found[rank]
        if rule.settings & ~decided and rule.context.selects(entity):
            rules.append(rule)
            if not rule.when and not rule.where:
                decided |= rule.settings
                if decided == EVERYTHING:
                    break
    return rules


def _add(rules: list[Rule], operations: int, found: dict[int, Rule]) -> None:
    for rule in rules:
        if rule.operations & operations:
            found[rule.rank] = rule
