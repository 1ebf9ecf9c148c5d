"""Relations between two predicates, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console

from accord.cli.screen import print_line
from accord.cli.table import fields
from accord.predicates import Predicate, covers, intersects

Answer = bool | None

EXIT_CODES: Final[Mapping[Answer, int]] = {True: 0, False: 1, None: 3}

_WORDS: Final[Mapping[Answer, str]] = {True: "yes", False: "no", None: "unknown"}
_COVERS: Final[Mapping[Answer, str]] = {
    True: "Yes: every event that matches B matches A.",
    False: "No: some events match B but not A.",
    None: "Unknown: whether every event that matches B matches A can't be told.",
}
_INTERSECTS: Final[Mapping[Answer, str]] = {
    True: "Yes: some events match both A and B.",
    False: "No: no event can match both A and B.",
    None: "Unknown: whether an event can match both A and B can't be told.",
}


def show_covers(console: Console, a: Predicate, b: Predicate) -> Answer:
    """Print whether `a` covers `b`, and return it."""
    answer = covers(a, b)
    print_line(console, _COVERS[answer])
    _show_relations(console, a, b, does_cover=answer, do_intersect=intersects(a, b))
    return answer


def show_intersects(console: Console, a: Predicate, b: Predicate) -> Answer:
    """Print whether `a` and `b` intersect, and return it."""
    answer = intersects(a, b)
    print_line(console, _INTERSECTS[answer])
    _show_relations(console, a, b, does_cover=covers(a, b), do_intersect=answer)
    return answer


def _show_relations(
    console: Console, a: Predicate, b: Predicate, *, does_cover: Answer, do_intersect: Answer
) -> None:
    console.print()
    relations = [
        ("A", str(a)),
        ("B", str(b)),
        ("A covers B", _WORDS[does_cover]),
        ("B covers A", _WORDS[covers(b, a)]),
        ("A intersects B", _WORDS[do_intersect]),
    ]
    console.print(fields(relations))
