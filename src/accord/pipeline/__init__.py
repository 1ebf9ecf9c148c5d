"""The data pipeline on Spark: archive, queries and analytics over the events that nodes keep.

    import accord.pipeline
    accord.pipeline.register(spark)
    events = spark.read.format("accord").load("accord-data/journal")
    tables = accord.pipeline.connect("accord-data/archive", spark)

Spark is imported on first use only: its workers import this package too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from accord.pipeline.archive_sql import ArchiveTables

__all__ = ["connect", "register"]


def connect(archive: str | Path, spark: SparkSession | None = None) -> ArchiveTables:
    """The tables and datasets of an archive, a directory or `s3://…`, in this Spark session.

    By default it is the one that is active, or a new one on this machine.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 (see above)

    from accord.pipeline.archive_sql import ArchiveTables  # noqa: PLC0415

    if spark is None:
        builder = SparkSession.builder.config("spark.sql.session.timeZone", "UTC")
        spark = builder.getOrCreate()
    return ArchiveTables(archive, spark)


def register(spark: SparkSession) -> None:
    """Register the format `accord` with this session."""
    from accord.pipeline.spark_source import register_format  # noqa: PLC0415 (see above)

    register_format(spark)
