"""LIKE patterns: `%` stands for any text, `_` for any one character.

Patterns are normalised, so that equal patterns are equal text: the escape character is a backslash,
used only where needed, and in each run of wildcards the `_` precede a single `%`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np

_WILDCARDS: Final = re.compile(r"(?:\\.)|([%_]{2,})", re.DOTALL)
_PIECE: Final = re.compile(r"\\(.)|(.)", re.DOTALL)
_REGEX_PIECE: Final = re.compile(r"\\?.", re.DOTALL)
_SHORT: Final = 4_096  # maximum comparisons left to a regular expression
_WINDOW: Final = 4_096


def normalise_pattern(pattern: str, escape: str | None) -> str:
    """Normalises `pattern`; ValueError if it ends in its escape character."""
    pieces: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("the pattern ends in its escape character")
            pieces.append(_literal(escaped))
        elif character in "%_":
            pieces.append(character)
        else:
            pieces.append(_literal(character))
    return _WILDCARDS.sub(_ordered, "".join(pieces))


def split_prefix(pattern: str) -> tuple[str, str]:
    """The literal text before the first wildcard, and the rest of the pattern."""
    prefix: list[str] = []
    for piece in _PIECE.finditer(pattern):
        if piece[2] is not None and piece[2] in "%_":
            return "".join(prefix), pattern[piece.start() :]
        prefix.append(piece[1] if piece[1] is not None else piece[2])
    return "".join(prefix), ""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Compiles a test that scans a text once: a part's first occurrence is as good as any other.

    (A regular expression of the whole would backtrack, which a hostile pattern exploits.) A part
    with `_` inside takes one pass for each of its other characters: see `pattern_weight`.
    """
    prefix, rest = split_prefix(pattern)
    if not rest:
        return prefix.__eq__
    if rest == "%":
        return lambda text: text.startswith(prefix)
    head, *parts = [_Part(regex, length) for regex, length in regex_parts(pattern)]
    if not parts:
        return lambda text: len(text) == head.length and head.fits(text, 0)
    *middle, tail = parts
    return lambda text: _is_like(text, head, middle, tail)


def _is_like(text: str, head: _Part, middle: list[_Part], tail: _Part) -> bool:
    if not head.fits(text, 0):
        return False
    position = head.length
    for part in middle:
        found = part.find(text, position)
        if found < 0:
            return False
        position = found + part.length
    last = len(text) - tail.length
    return last >= position and tail.fits(text, last)


class _Part:
    """The text and `_` between two `%`, of fixed length."""

    def __init__(self, regex: str, length: int) -> None:
        self.length = length
        self._regex = re.compile(regex, re.DOTALL)
        pieces = list(_REGEX_PIECE.finditer(regex))
        self._text = "" if "." in (piece[0] for piece in pieces) else _literal_text(pieces)
        self._fixed = [
            (offset, ord(piece[0][-1])) for offset, piece in enumerate(pieces) if piece[0] != "."
        ]

    def fits(self, text: str, position: int) -> bool:
        return self._regex.match(text, position) is not None

    def find(self, text: str, start: int) -> int:
        if self._text:
            return text.find(self._text, start)
        if (len(text) - start) * len(self._fixed) <= _SHORT:
            found = self._regex.search(text, start)
            return -1 if found is None else found.start()
        return self._find_in_long(text, start)

    def _find_in_long(self, text: str, start: int) -> int:
        """Tests many positions at once: a regular expression may go far from each before it fails.

        Code points are compared by the window: the characters at one offset from all positions.
        """
        last = len(text) - self.length
        while start <= last:
            window = text[start : start + _WINDOW + self.length]
            codes = np.frombuffer(window.encode("utf-32-le"), np.uint32)
            places = min(_WINDOW, last - start + 1)
            fits = np.ones(places, np.bool_)
            for offset, code in self._fixed:
                fits &= codes[offset : offset + places] == code
            if fits.any():
                return start + int(fits.argmax())
            start += places
        return -1


def _literal_text(pieces: list[re.Match[str]]) -> str:
    return "".join(piece[0][-1] for piece in pieces)


def pattern_weight(pattern: str) -> int:
    """Maximum number of passes over a text to match it against `pattern`."""
    weight = 1
    for regex, _ in regex_parts(pattern):
        pieces = [piece[0] for piece in _REGEX_PIECE.finditer(regex)]
        if "." in pieces:
            weight += len(pieces) - pieces.count(".")
    return weight


def regex_parts(pattern: str) -> list[tuple[str, int]]:
    """Parts before, between and after each `%`: regular expression and length."""
    parts: list[list[str]] = [[]]
    for piece in _PIECE.finditer(pattern):
        if piece[0] == "%":
            parts.append([])
        else:
            parts[-1].append("." if piece[0] == "_" else re.escape(piece[1] or piece[2]))
    return [("".join(part), len(part)) for part in parts]


def _literal(character: str) -> str:
    return f"\\{character}" if character in "%_\\" else character


def _ordered(found: re.Match[str]) -> str:
    run = found[1]
    if run is None:
        return found[0]
    return "_" * run.count("_") + "%" * ("%" in run)
