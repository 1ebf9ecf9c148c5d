"""The data pipeline on Spark: archive, queries and analytics of what nodes keep.

    import accord.pipeline
    accord.pipeline.register(spark)
    events = spark.read.format("accord").load("accord-data/journal")

Nothing of Spark is imported before it is used: workers import this package too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats `accord` and `accord_slices` known to this session."""
    from accord.pipeline.spark_source import register_formats  # noqa: PLC0415 (see above)

    register_formats(spark)
