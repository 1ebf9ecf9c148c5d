"""The rest of a term: what Python evaluates after an index has checked single attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.evaluate import Evaluator, compile_node
from accord.core.predicates.like import pattern_weight
from accord.core.predicates.terms import Term
from accord.core.predicates.tree import And, Expr, Like, walk

# One step of work is a simple test, or one pass over this much text.
TEXT_PER_STEP: Final = 64


class Rest:
    """A conjunction, compiled when first used.

    `weight` is the number of passes over the texts of an event: with their length it gives the
    cost, so that a limit on work holds for long texts too.
    """

    __slots__ = ("_evaluate", "_nodes", "weight")

    def __init__(self, nodes: tuple[Expr, ...]) -> None:
        self._nodes = nodes
        self._evaluate: Evaluator | None = None
        patterns = (node for root in nodes for node in walk(root) if isinstance(node, Like))
        self.weight = sum(pattern_weight(node.pattern) for node in patterns)

    def __call__(self, values: Mapping[str, Value], document: Document | None) -> Value | None:
        if self._evaluate is None:
            self._evaluate = compile_node(And(self._nodes))
        return self._evaluate(values, document)


def rest_of(term: Term) -> Rest | None:
    """The part of `term` that its sets do not express, or None if they express it all."""
    nodes = (*term.paths, *term.rest)
    return Rest(nodes) if nodes else None
