"""Many filters for one channel: no session has the same twice, but each with its own predicate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

# Of six levels, which 191 filters select.
CHANNEL: Final = "bench/a/b/c/d/e"


def filters(channel: str) -> Iterator[str]:
    """All filters that select the channel, the plainest first."""
    levels = channel.split("/")
    for choice in product((False, True), repeat=len(levels)):
        yield "/".join(
            "+" if is_any else level for level, is_any in zip(levels, choice, strict=True)
        )
    for depth in range(len(levels), -1, -1):
        for choice in product((False, True), repeat=depth):
            some = zip(levels, choice, strict=False)
            yield "/".join([*("+" if is_any else level for level, is_any in some), "#"])
