"""What both engines answer: rows of the archive, counts, contents and outcomes.

An engine reads one snapshot of a table, so that its answer does not depend on what is archived or
compacted meanwhile. Files that are gone by then make it stale: a newer snapshot has their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from accord.core.queries.messages import EngineName
from accord.pipeline.delta_log import TableSnapshot
from accord.pipeline.query.checks import CheckedQuery
from accord.pipeline.query.scan_ranges import RemainingQuery, ScanRange, SortRank
from accord.pipeline.tables import TableFile

POSITION: Final = ("received", "offset")  # the order of events
CONTENTS: Final = ("offset", "properties", "payload")
NO_CONTENTS: Final = pa.schema(  # `pa.table` would import pandas
    [("offset", pa.int64()), *((name, pa.binary()) for name in CONTENTS[1:])]
).empty_table()
OUTCOME: Final = (  # of the ledger
    "node", "number", "count", "channel", "publisher", "destination", "outcome", "importance",
    "policy", "detail", "sending_us", "bytes", "received", "queued", "done",
)  # fmt: skip
MISSING: Final = (  # signs of files that are gone, in the words of DataFusion and Spark
    "not found: No such file",
    "FILE_NOT_EXIST",
    "PATH_NOT_FOUND",
    "FileNotFoundException",
    "FileNotFoundError",
    "404 Not Found",
)
Check = Callable[[], object]  # raises if the query was cancelled


class StaleError(Exception):
    """Records are not where they were: by now they are in the archive, or in other files of it."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rest of a query, in a range of the archive."""

    question: CheckedQuery
    part: RemainingQuery
    range: ScanRange
    snapshot: TableSnapshot
    node: str


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows in the order of the query, with the columns `chunks.ROW`.

    `end` is the last position that was looked at, if rows of the range are left.
    """

    rows: pa.Table
    end: SortRank | None


class ArchiveEngine(Protocol):
    """Answers lookups; thread-safe. StaleError if files are gone."""

    name: EngineName

    def find(self, lookup: Lookup, most: int, check: Check) -> FoundRows:
        """The first rows that match, at most so many."""
        ...

    def counts(self, lookup: Lookup, width_ms: int, check: Check) -> list[tuple[int, int]]:
        """How many rows match, by time of receipt divided by `width_ms`."""
        ...

    def contents(
        self,
        snapshot: TableSnapshot,
        node: str,
        files: Sequence[TableFile],
        offsets: Sequence[int],
        check: Check,
    ) -> pa.Table:
        """The columns CONTENTS of these rows, in any order."""
        ...

    def outcomes(
        self,
        snapshot: TableSnapshot,
        node: str,
        files: Sequence[TableFile],
        number: int,
        most: int,
    ) -> pa.Table:
        """The entries of an event in the ledger, at most so many, with the columns OUTCOME."""
        ...


def is_missing(error: Exception) -> bool:
    """Whether it says that a file is gone."""
    return any(sign in str(error) for sign in MISSING)
