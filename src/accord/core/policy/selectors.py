"""The three selectors of a policy, parsed once: `who`, `where` and `when`.

All are three-valued and count only if true. `where` refers to an event's attributes and
`payload_bytes`, `when` to resources, `who` to an entity's names.

An entity can be in several groups, so in a `who` each test of `group` is a membership test: `group
= 'a'` is "in a", `group <> 'a'` and `NOT group = 'a'` are "not in a", `group IN ('a', 'b')` is "in
at least one of them", `group IS NULL` is "in none at all". Such a test is never unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from accord.core.model.errors import PolicyError, PredicateError
from accord.core.policy.entity import Entity
from accord.core.policy.policy import (
    CLIENT_RESOURCES,
    ENTITY_NAMES,
    NODE_RESOURCES,
    PAYLOAD_BYTES,
    Policy,
)
from accord.core.predicates.evaluate import Evaluator, compile_node
from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.tree import (
    TRUE,
    And,
    Attribute,
    Compare,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    PathTest,
    XPath,
    walk,
)

_KEPT_TEXTS: Final = 20_000
_RESOURCES: Final = NODE_RESOURCES | CLIENT_RESOURCES
_GROUP: Final = Attribute("group")


@dataclass(frozen=True, slots=True)
class Selectors:
    """The parsed selectors of one policy; None for each that it does not have."""

    who: EntitySelector | None = None
    where: Predicate | None = None
    when: Predicate | None = None

    @property
    def conditions(self) -> int:
        """Number of conditions joined by AND."""
        who = None if self.who is None else self.who.predicate
        return sum(_conjuncts(each) for each in (who, self.where, self.when) if each is not None)

    @property
    def resources(self) -> frozenset[str]:
        """Resources that `when` refers to."""
        return frozenset() if self.when is None else _names_in(self.when)

    @property
    def attributes(self) -> frozenset[str]:
        """Attributes that `where` refers to."""
        return frozenset() if self.where is None else _names_in(self.where)

    @property
    def needs_attributes(self) -> bool:
        """Whether `where` refers to more of an event than its size."""
        if self.where is None:
            return False
        return _has_xpath(self.where) or not self.attributes <= {PAYLOAD_BYTES}


def parse_selectors(policy: Policy) -> Selectors:
    """Raises PolicyError if a selector is invalid."""
    return Selectors(
        _parse_who(policy.who, _place(policy, "who")),
        _parse(policy.where, _place(policy, "where")),
        _parse_when(policy.when, _place(policy, "when")),
    )


class EntitySelector:
    """A condition on an entity's names.

    `required` are names of one kind, one of which every matching entity has, if there are such.
    """

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.required = _required(predicate.tree)
        self._memberships: dict[str, _Membership] = {}
        self._evaluate: Evaluator = compile_node(self._rewritten(predicate.tree))

    def selects(self, entity: Entity) -> bool:
        values = entity.names
        if self._memberships:
            values = dict(values)
            for name, membership in self._memberships.items():
                values[name] = membership.holds(entity.groups)
        return self._evaluate(values, None) is True

    def _rewritten(self, node: Expr) -> Expr:
        """Replaces tests of `group` by attributes named after their text."""
        if isinstance(node, And | Or):
            return type(node)(tuple(map(self._rewritten, node.items)))
        if _GROUP not in walk(node):
            return node
        self._memberships[node.text] = _Membership(node)
        return Compare("=", Attribute(node.text), Literal(True))


class _Membership:
    """One membership test, for the groups of an entity."""

    def __init__(self, node: Expr) -> None:
        self._is_null = isinstance(node, IsNull)
        self._is_negated = False
        match node:
            case Compare("=" | "<>", Attribute(), Literal(value)):
                self._is_negated = node.op == "<>"
                test: Expr = Compare("=", _GROUP, Literal(value))
            case In(Attribute(), values, is_negated):
                self._is_negated = is_negated
                test = In(_GROUP, values)
            case Like(Attribute(), pattern, is_negated):
                self._is_negated = is_negated
                test = Like(_GROUP, pattern)
            case IsNull(Attribute(), is_negated):
                self._is_negated = is_negated
                test = TRUE
            case _:
                expected = "group compared with texts by =, <>, IN, LIKE or IS NULL"
                raise ValueError(f"expected {expected}, got {node.text}")
        self._test = compile_node(test)

    def holds(self, groups: tuple[str, ...]) -> bool:
        if self._is_null:
            return bool(groups) is self._is_negated
        found = any(self._test({"group": group}, None) is True for group in groups)
        return found is not self._is_negated


def _parse_who(text: str, place: str) -> EntitySelector | None:
    predicate = _parse(text, place)
    if predicate is None:
        return None
    _check_names(predicate, ENTITY_NAMES, place)
    try:
        return EntitySelector(predicate)
    except ValueError as error:
        raise PolicyError(place, str(error)) from None


def _parse_when(text: str, place: str) -> Predicate | None:
    predicate = _parse(text, place)
    if predicate is not None:
        _check_names(predicate, sorted(_RESOURCES), place)
    return predicate


def _parse(text: str, place: str) -> Predicate | None:
    try:
        predicate = _parsed(text) if text else None
    except PredicateError as error:
        raise PolicyError(place, error.summary) from None
    return None if predicate is None or predicate.tree == TRUE else predicate


@lru_cache(maxsize=_KEPT_TEXTS)
def _parsed(text: str) -> Predicate:
    """Cached by text: a new policy set mostly repeats the last one."""
    return parse(text)


def _check_names(predicate: Predicate, allowed: Collection[str], place: str) -> None:
    unknown = sorted(_names_in(predicate) - frozenset(allowed))
    if unknown:
        raise PolicyError(place, f"expected some of {', '.join(allowed)}, got {unknown[0]}")
    if _has_xpath(predicate):
        raise PolicyError(place, "expected no XPATH condition: there is no document to ask")


def _names_in(predicate: Predicate) -> frozenset[str]:
    return frozenset(node.name for node in walk(predicate.tree) if isinstance(node, Attribute))


def _has_xpath(predicate: Predicate) -> bool:
    return any(isinstance(node, PathTest | XPath) for node in walk(predicate.tree))


def _required(tree: Expr) -> tuple[str, frozenset[str]] | None:
    for node in tree.items if isinstance(tree, And) else (tree,):
        match node:
            case Compare("=", Attribute(name), Literal(str(value))):
                return name, frozenset((value,))
            case In(Attribute(name), values, False):
                return name, frozenset(value for value in values if isinstance(value, str))
    return None


def _conjuncts(predicate: Predicate) -> int:
    return len(predicate.tree.items) if isinstance(predicate.tree, And) else 1


def _place(policy: Policy, field: str) -> str:
    return f'policy "{policy.name}", {field}'
