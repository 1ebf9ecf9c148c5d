"""A window of a large table: rows are searched, sorted and cut, for lists of channels and clients.

Only the rows of the window are ever built: a row is whatever identifies it, its text and its sort
key are read by functions. Equal keys keep the order of the rows given, and rows without a key come
last in both directions, so that a window is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

Row = TypeVar("Row")
Cell = str | int | float | None

_KEY: Final = itemgetter(0)


class Window(Struct, Generic[Row], frozen=True, kw_only=True):
    """Some rows of a table: `matching` of `total` rows match the search."""

    total: int
    matching: int
    rows: list[Row]


def select_window(  # noqa: PLR0913 (all but the first by keyword)
    rows: Sequence[Row],
    *,
    text: Callable[[Row], str],
    key: Callable[[Row], Cell] | None = None,
    search: str = "",
    is_descending: bool = False,
    limit: int,
    offset: int = 0,
) -> Window[Row]:
    """The rows whose `text` has all words of `search`, ordered by `key`, from `offset` on."""
    found = search_rows(rows, text, search)
    ordered = found if key is None else sort_rows(found, key, is_descending=is_descending)
    return Window(total=len(rows), matching=len(found), rows=list(ordered[offset : offset + limit]))


def search_rows(rows: Sequence[Row], text: Callable[[Row], str], search: str) -> Sequence[Row]:
    """The rows whose text has all words of `search`, whatever their case."""
    words = search.casefold().split()
    if not words:
        return rows
    first, *others = words
    found: Iterable[tuple[str, Row]] = [
        (folded, row) for row in rows if first in (folded := text(row).casefold())
    ]
    return [row for folded, row in found if all(word in folded for word in others)]


def sort_rows(
    rows: Sequence[Row], key: Callable[[Row], Cell], *, is_descending: bool = False
) -> list[Row]:
    """The rows by their keys; those with equal keys in the order given, those without one last."""
    keyed: list[tuple[Any, Row]] = []
    without: list[Row] = []
    for row in rows:
        value = key(row)
        if value is None:
            without.append(row)
        else:
            keyed.append((value, row))
    keyed.sort(key=_KEY, reverse=is_descending)
    return [row for _, row in keyed] + without
