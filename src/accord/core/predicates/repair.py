"""Suggests how a selector with a syntax error may have been meant.

Tries small edits where the parser stops: operators of other languages, misspelt keywords, quotes
and brackets that are not closed. An edit is kept if the parser then gets further, and the result is
suggested only if all of it parses. The number of attempts is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from accord.core.model.errors import PredicateError
from accord.core.predicates.selector import parse_selector

MAX_LENGTH: Final = 500
MAX_PARSES: Final = 24

_OPERATORS: Final = {
    "==": "=", "&&": " AND ", "||": " OR ", "=>": ">=", "=<": "<=", "!": " NOT ", "&": " AND ",
    "|": " OR ", "~": " LIKE ",
}  # fmt: skip
_TYPOGRAPHIC: Final = str.maketrans(dict.fromkeys("‘’“”", "'"))
_KEYWORDS: Final = ("AND", "BETWEEN", "ESCAPE", "IN", "IS", "LIKE", "NOT", "NULL", "OR")
_WORD: Final = re.compile(r"[\w$.]+")


def suggest_repair(text: str) -> str:
    """A predicate that parses and differs from `text` by few edits; empty if none is known."""
    if len(text) > MAX_LENGTH:
        return ""
    left = MAX_PARSES
    found, position = text, _stops_at(text)
    while position is not None:
        furthest: tuple[str, int | None] | None = None
        for candidate in _candidates(found, position):
            left -= 1
            if left < 0:
                return ""
            stop = _stops_at(candidate)
            if stop is None or stop - len(candidate) > position - len(found):
                furthest = candidate, stop
                break
        if furthest is None:
            return ""
        found, position = furthest
    return "" if found == text else found.strip()


def _stops_at(text: str) -> int | None:
    """Where the parser stops; None if it accepts the text."""
    try:
        parse_selector(text)
    except PredicateError as error:
        return 0 if error.position is None else error.position
    return None


def _candidates(text: str, position: int) -> Iterator[str]:
    for start in (position - 1, position):
        for length in (2, 1):
            operator = text[max(start, 0) : start + length]
            if operator in _OPERATORS and len(operator) == length:
                yield _replaced(text, start, length, _OPERATORS[operator])
    if (plain := text.translate(_TYPOGRAPHIC)) != text:
        yield plain
    if text[position : position + 1] in ("'", '"'):
        yield text + text[position]
    if position >= len(text.rstrip()):
        yield text.rstrip() + ")" * max(text.count("(") - text.count(")"), 0)
    if text[position : position + 1] == ")":
        yield _replaced(text, position, 1, "")
    # The parser stops at a misspelt keyword, or after one that it took for a name.
    words = list(_WORD.finditer(text))
    later = [each for each in words if each.end() > position][:1]
    earlier = [each for each in words if each.end() <= position][-1:]
    for word in later + earlier:
        for keyword in get_close_matches(word[0].upper(), _KEYWORDS, n=2, cutoff=0.6):
            if keyword != word[0].upper():
                yield _replaced(text, word.start(), len(word[0]), keyword)


def _replaced(text: str, start: int, length: int, with_: str) -> str:
    before, after = text[:start], text[start + length :]
    if with_.startswith(" ") and before.endswith(" "):
        before = before.rstrip()
    if with_.endswith(" ") and after.startswith(" "):
        after = after.lstrip()
    return (before + with_ + after) if before else with_.lstrip() + after
