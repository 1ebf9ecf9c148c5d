"""The data pipeline on Spark: archive, queries and analytics over the events that nodes keep.

    import accord.pipeline
    accord.pipeline.register(spark)
    events = spark.read.format("accord").load("accord-data/journal")

Spark is imported on first use only: its workers import this package too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register the formats `accord` and `accord_slices` with this session."""
    from accord.pipeline.spark_source import register_formats  # noqa: PLC0415 (see above)

    register_formats(spark)
