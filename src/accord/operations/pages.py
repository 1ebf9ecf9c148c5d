"""Pages of long lists: searched, sorted, and without blocking the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta

from accord.core.monitoring.table_window import Window, select_window

Rows = Annotated[int, Meta(ge=1, le=1_000, description="How many at most.")]
Offset = Annotated[int, Meta(ge=0, le=100_000_000, description="How many to pass over.")]
Search = Annotated[
    str, Meta(max_length=1_000, description="Words that a name contains, in any case.")
]
Descending = Annotated[bool, Meta(description="Largest first.")]

Row = TypeVar("Row")
_SLICE: Final = 500  # rows between two turns of the event loop


async def select(  # noqa: PLR0913 (a parameter per field)
    rows: Iterable[Row],
    *,
    text: Callable[[Row], str],
    search: str,
    key: Callable[[Row], Any],
    descending: bool,
    offset: int,
    limit: int,
) -> Window[Row]:
    """The page of the rows that match, which are made in slices; see `select_window`."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if len(found) % _SLICE == 0:
            await asyncio.sleep(0)
    return select_window(
        found,
        text=text,
        key=key,
        search=search,
        is_descending=descending,
        limit=limit,
        offset=offset,
    )
