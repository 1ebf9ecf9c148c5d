"""Which engine answers: DataFusion what is small, Spark what is large.

What counts is how much has to be read after data skipping, and how many rows only Python decides.
Of 5 million events on two busy cores, DataFusion answered selective questions in 12 to 22 ms, where
embedded Spark took 90 to 110; it read 148 MB in 0.36 s (Spark: 0.96 s). But it does so in this
process, and only here: larger ranges go to Spark, which may have a cluster. What SQL can't express
is decided by Python, at about 7 µs a row: DataFusion took 4.2 s for 400,000 rows, Spark 0.6 s.
(`benchmarks.archive_queries` measures both.)

Without Spark, which takes seconds to start and needs Java, DataFusion answers everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from accord.core.queries.messages import EngineName
from accord.pipeline.query import datafusion_predicate
from accord.pipeline.query.checks import CheckedQuery, InvalidQueryError
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.scan_ranges import ScanRange
from accord.pipeline.tables import TableFile

SMALL_BYTES: Final = 128 << 20
LOOSE_ROWS: Final = 100_000  # where SQL can't tell which match


class Planner:
    """Chooses between engines; `spark` returns None as long as it is not up."""

    def __init__(
        self, datafusion: ArchiveEngine, spark: Callable[[], ArchiveEngine | None] = lambda: None
    ) -> None:
        self._datafusion = datafusion
        self._spark = spark

    def choose(self, question: CheckedQuery, stretch: ScanRange) -> ArchiveEngine:
        """The engine to read this range; InvalidQueryError if the wanted one is not up."""
        wanted = question.query.engine
        if wanted is not None:
            return self.named(wanted)
        is_loose = question.has_predicate and not datafusion_predicate.is_tight(question.predicate)
        is_small = stretch.bytes <= SMALL_BYTES and not (is_loose and stretch.rows > LOOSE_ROWS)
        return self._chosen(is_small=is_small)

    def of_files(self, files: Sequence[TableFile]) -> ArchiveEngine:
        """The engine to look something up in these files."""
        return self._chosen(is_small=sum(file.bytes for file in files) <= SMALL_BYTES)

    def _chosen(self, *, is_small: bool) -> ArchiveEngine:
        return self._datafusion if is_small else self._spark() or self._datafusion

    def named(self, name: EngineName) -> ArchiveEngine:
        if name == "datafusion":
            return self._datafusion
        spark = self._spark()
        if spark is None:
            raise InvalidQueryError("Spark is not up: try again later, or without --engine spark")
        return spark
