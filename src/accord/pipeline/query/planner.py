"""Which engine answers: DataFusion what is small, Spark what is large.

What counts is what has to be read after data skipping, and how many rows only Python can decide.
DataFusion needs a few milliseconds where a Spark job needs a hundred, and reads some hundred
megabytes a second. It runs in this process on its processors, and what it finds is decided by
Python at about 7 µs a row, where Spark decides in Java on all of its cluster. Both are equally fast
at about these sizes (`benchmarks.archive_queries` shows both).

Without Spark, which takes seconds to start and needs Java, DataFusion answers everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from accord.core.queries.messages import EngineName
from accord.pipeline.query import datafusion_predicate
from accord.pipeline.query.checks import CheckedQuery, InvalidQueryError
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.tables import TableFile

SMALL_BYTES: Final = 64 << 20
LOOSE_ROWS: Final = 100_000  # of which SQL can't tell which match


class Planner:
    """Chooses between engines; `spark` returns None as long as it is not up."""

    def __init__(
        self, datafusion: ArchiveEngine, spark: Callable[[], ArchiveEngine | None] = lambda: None
    ) -> None:
        self._datafusion = datafusion
        self._spark = spark

    def choose(self, question: CheckedQuery, files: Sequence[TableFile]) -> ArchiveEngine:
        """The engine to read these files; InvalidQueryError if the wanted one is not up."""
        wanted = question.query.engine
        if wanted is not None:
            return self.named(wanted)
        is_loose = question.has_predicate and not datafusion_predicate.is_tight(question.predicate)
        if is_loose and sum(file.rows for file in files) > LOOSE_ROWS:
            return self._spark() or self._datafusion
        return self.of_files(files)

    def of_files(self, files: Sequence[TableFile]) -> ArchiveEngine:
        if sum(file.bytes for file in files) <= SMALL_BYTES:
            return self._datafusion
        return self._spark() or self._datafusion

    def named(self, name: EngineName) -> ArchiveEngine:
        if name == "datafusion":
            return self._datafusion
        spark = self._spark()
        if spark is None:
            raise InvalidQueryError("Spark is not up: try again later, or without --engine spark")
        return spark
