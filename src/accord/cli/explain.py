"""Explains a predicate: canonical form, identity, tree, and what it reads."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from accord.cli.screen import print_line, safe
from accord.cli.table import fields
from accord.core.predicates.terms import Term, to_terms
from accord.core.predicates.tree import (
    And,
    Attribute,
    Expr,
    Literal,
    Not,
    Or,
    PathTest,
    XPath,
    render_name,
    walk,
)
from accord.predicates import Predicate

_JUNCTIONS: Final = {And: "all of", Or: "any of", Not: "not"}


def show_explanation(console: Console, predicate: Predicate) -> None:
    facts = [("canonical", str(predicate)), ("digest", predicate.digest)]
    if names := attributes_of(predicate):
        facts.append(("attributes", ", ".join(map(render_name, names))))
    if paths := paths_of(predicate):
        facts.append(("XML paths", ", ".join(paths)))
    if conditions := conditions_of(predicate):
        facts.append(("XPath", "; ".join(conditions)))
    facts.append(("index", index_use(predicate)))
    console.print(fields(facts))
    console.print()
    if isinstance(predicate.tree, Literal):
        print_line(console, f"matches {'every' if predicate.tree.value else 'no'} event")
    else:
        console.print(_draw(predicate.tree))


def attributes_of(predicate: Predicate) -> list[str]:
    return sorted({node.name for node in walk(predicate.tree) if isinstance(node, Attribute)})


def paths_of(predicate: Predicate) -> list[str]:
    return sorted({node.path for node in walk(predicate.tree) if isinstance(node, PathTest)})


def conditions_of(predicate: Predicate) -> list[str]:
    """Conditions that have no equivalent in the tree, and need an XPath engine."""
    return sorted({node.expression for node in walk(predicate.tree) if isinstance(node, XPath)})


def index_use(predicate: Predicate) -> str:
    """What an index can do with the predicate before evaluating it."""
    terms = to_terms(predicate.tree)
    if not terms:
        return "drops it, no event can match"
    narrowing = [_narrowing(term) for term in terms]
    if not all(narrowing):
        return "looks at it for every event on its channels"
    names = ", ".join(sorted({name for names in narrowing for name in names}))
    rest = " and ".join(sorted({node.text for term in terms for node in term.rest}))
    return f"narrows by {names}" + (f", then evaluates {rest}" if rest else "")


def _narrowing(term: Term) -> list[str]:
    """What an event must have for the term to match."""
    names = [render_name(name) for name, allowed in term.sets.items() if not allowed.has_null]
    return names + [test.path for test in term.paths]


def _draw(node: Expr) -> Tree:
    # Iterative, like all walks over trees of unknown depth.
    root = Tree(_label(node), guide_style="dim")
    pending = [(node, root)]
    while pending:
        parent, branch = pending.pop()
        if type(parent) in _JUNCTIONS:
            pending.extend((child, branch.add(_label(child))) for child in parent.children)
    return root


def _label(node: Expr) -> Text:
    junction = _JUNCTIONS.get(type(node))
    return Text(junction, "bold") if junction else Text(safe(node.text))
