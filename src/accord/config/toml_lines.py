"""Finds the line of each key of a TOML document, which Python's parser does not report.

It runs after that parser has accepted the document, so it only has to locate things: keys before
`=`, headers in brackets, and values, of which strings, arrays and inline tables may contain
anything that looks like one of those.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect
from typing import Final

Path = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY: Final = re.compile(
    r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')
        (?:[ \t]*\.[ \t]*(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'))*""",
    re.VERBOSE,
)
_STRING: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""(?:"{0,2})|\'\'\'.*?\'\'\'(?:'{0,2})|"(?:[^"\\]|\\.)*"|'[^']*\'''',
    re.DOTALL,
)
_BARE: Final = re.compile(r"[^,\]}#\n]+")


class TomlLines:
    """Line numbers by path: names of tables and keys, and positions in arrays."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(end.end() for end in re.finditer("\n", text))]
        self._position = 0
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        self._document()

    def find(self, path: Path) -> int:
        """The line of `path`, or of its nearest ancestor that has one; 1 if none has."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def paths(self) -> set[Path]:
        return set(self._lines)

    def _document(self) -> None:
        table: Path = ()
        while self._skip_blank() < len(self._text):
            if self._text.startswith("[[", self._position):
                table = self._open_element()
            elif self._text[self._position] == "[":
                self._position += 1
                self._skip_blank()
                table = self._open(self._key())
                self._expect("]")
            else:
                self._pair(table)

    def _open_element(self) -> Path:
        self._position += 2
        self._skip_blank()
        *around, name = self._key()
        array = (*self._open(tuple(around)), name)
        number = self._counts[array] = self._counts.get(array, 0) + 1
        self._record_line(array)
        self._record_line((*array, number - 1))
        self._expect("]]")
        return (*array, number - 1)

    def _open(self, names: tuple[str, ...]) -> Path:
        """The table that `names` lead to, through the last elements of arrays on the way."""
        path: Path = ()
        for name in names:
            path = (*path, name)
            self._record_line(path)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, table: Path) -> None:
        for name in self._key():
            table = (*table, name)
            self._record_line(table)
        self._expect("=")
        self._value(table)

    def _value(self, path: Path) -> None:
        self._skip_blank()
        first = self._text[self._position]
        if first == "[":
            self._items(path, "]")
        elif first == "{":
            self._items(path, "}")
        else:
            pattern = _STRING if first in "\"'" else _BARE
            found = pattern.match(self._text, self._position)
            assert found is not None, "the parser took it"
            self._position = found.end()

    def _items(self, path: Path, end: str) -> None:
        self._position += 1
        number = 0
        while self._text[self._skip_blank()] != end:
            if end == "]":
                self._record_line((*path, number))
                self._value((*path, number))
                number += 1
            else:
                self._pair(path)
            if self._text[self._skip_blank()] == ",":
                self._position += 1
        self._position += 1

    def _key(self) -> tuple[str, ...]:
        found = _KEY.match(self._text, self._position)
        assert found is not None, "the parser took it"
        self._position = found.end()
        names = []
        inner: object = tomllib.loads(f"{found[0]} = 0")
        while isinstance(inner, dict):
            ((name, inner),) = inner.items()
            names.append(name)
        return tuple(names)

    def _expect(self, text: str) -> None:
        self._skip_blank()
        assert self._text.startswith(text, self._position), "the parser took it"
        self._position += len(text)

    def _skip_blank(self) -> int:
        found = _BLANK.match(self._text, self._position)
        assert found is not None, "it may be empty"
        self._position = found.end()
        return self._position

    def _record_line(self, path: Path) -> None:
        self._lines.setdefault(path, bisect(self._starts, self._position))
