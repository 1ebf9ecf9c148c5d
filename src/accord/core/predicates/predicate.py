"""The public predicate: parsed once, printable, comparable, ready to evaluate."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

from accord.core.model.document import Document
from accord.core.model.errors import PredicateError
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.canonical import canonical
from accord.core.predicates.evaluate import Evaluator, compile_node
from accord.core.predicates.selector import parse_selector
from accord.core.predicates.tree import TRUE, Expr
from accord.core.predicates.xpath import parse_xpath as _parse_xpath


class Predicate:
    """A condition over an event's attributes and XML metadata.

    Two predicates are equal if their canonical trees are; `str()` gives the canonical text, and
    `digest` a short identity that is the same in every process.
    """

    def __init__(self, tree: Expr) -> None:
        self.tree = canonical(tree)

    @cached_property
    def _evaluate(self) -> Evaluator:
        return compile_node(self.tree)

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.tree.text.encode(), digest_size=16).hexdigest()

    def matches(self, event: Event) -> bool:
        return self._evaluate(event.values, event.metadata) is True

    def evaluate(
        self, values: Mapping[str, Value], document: Document | None = None
    ) -> bool | None:
        """True, False, or None for unknown; unknown constants count as false."""
        truth = self._evaluate(values, document)
        return truth if isinstance(truth, bool) else None

    def __str__(self) -> str:
        return self.tree.text

    def __repr__(self) -> str:
        return f"parse({self.tree.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    def __reduce__(self) -> tuple[type[Predicate], tuple[Expr]]:
        return Predicate, (self.tree,)


EVERYTHING = Predicate(TRUE)


def parse(text: str) -> Predicate:
    """Parses a selector; raises PredicateError if it is invalid."""
    _check_text(text)
    return Predicate(parse_selector(text))


def parse_xpath(text: str, namespaces: Mapping[str, str] | None = None) -> Predicate:
    """Parses an XPath 1.0 condition; raises PredicateError if it is invalid."""
    _check_text(text)
    return Predicate(_parse_xpath(text, namespaces))


def _check_text(text: str) -> None:
    """Refuses lone surrogates, which no event's text can contain and nothing could print."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PredicateError(
            "a lone surrogate", text=text, position=error.start, expected="Unicode text"
        ) from None
