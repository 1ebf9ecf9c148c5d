"""The `rule-engine` library, which has no index: its users evaluate rule by rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import rule_engine

from accord.core.model.event import Event
from accord.core.predicates.tree import Attribute, Compare, CompareOp, Expr, Literal, walk
from benchmarks.workloads import Keyed

_OPS: Final[dict[CompareOp, str]] = {
    "=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip


class RuleEngine:
    """One rule per predicate. For events that have all attributes: absent ones raise there."""

    def __init__(self, predicates: Iterable[Keyed]) -> None:
        self._rules = [
            (key, rule_engine.Rule(rule_text(predicate.tree))) for key, predicate in predicates
        ]

    def match(self, event: Event) -> list[int]:
        values = event.values
        return [key for key, rule in self._rules if rule.matches(values)]


def rule_text(tree: Expr) -> str:
    """A conjunction of comparisons with numbers, in the words of rule-engine."""
    return " and ".join(_test(node) for node in walk(tree) if isinstance(node, Compare))


def _test(node: Compare) -> str:
    assert isinstance(node.left, Attribute)
    assert isinstance(node.right, Literal)
    return f"{node.left.name} {_OPS[node.op]} {node.right.value!r}"
