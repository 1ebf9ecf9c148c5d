"""Bulk brokering: a stream of events matched with 10,000 predicates on Spark, which then change.

    python examples/bulk_brokering.py                             # counts matches, on this machine
    python examples/bulk_brokering.py --spark spark://host:7077   # on a cluster
    python examples/bulk_brokering.py --node mqtt://localhost     # publishes matches to a node

The events are made up here. Those of a node's journal are read with
`spark.readStream.format("accord").load("accord-data/journal")`, and matched in the same way. On a
cluster the work folder has to be one that all machines see.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import accord.pipeline
from accord.core.queries.messages import StartPipeline
from accord.pipeline.bulk_brokering import (
    MatchSink,
    PredicateFolder,
    Registered,
    broker_stream,
    compile_set,
)
from accord.pipeline.session import open_session

TOPICS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description="match a stream with many predicates")
    parser.add_argument("--spark", default="", help="a master's address (default: in this process)")
    parser.add_argument("--node", default="", metavar="URL", help="publish matches there")
    parser.add_argument("--work", type=Path, help="a folder that all workers see")
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="accord-brokering-") as made:
        work = options.work or Path(made)
        start = StartPipeline(
            node="example", journal="", archive="", work=str(work), spark=options.spark
        )
        spark = open_session(start)
        try:
            accord.pipeline.register(spark)
            run(spark, work, options.node, options.seconds)
        finally:
            spark.stop()


def run(spark: SparkSession, work: Path, node: str, seconds: int) -> None:
    predicates = PredicateFolder(work / "predicates")
    predicates.publish(compile_set(subscriptions("low", 0)))
    checkpoint = str(work / f"checkpoint-{time.time_ns()}")
    sink = MatchSink(checkpoint=checkpoint, format="memory", options={"queryName": "matches"})
    if node:
        sink = MatchSink(checkpoint=checkpoint, options={"url": node})
    query = broker_stream(tracks(spark), predicates, sink)
    try:
        for name in ("low", "high"):
            query.awaitTermination(seconds // 2)
            if not node:
                show(spark)
            if name == "low":
                # The stream goes on; from the next batch on it finds other matches.
                predicates.publish(compile_set(subscriptions("high", 9_000)))
                print("-- other predicates --", flush=True)
    finally:
        query.stop()


def subscriptions(name: str, lowest_m: int) -> Iterator[Registered]:
    """Each wants the tracks of one topic, within 100 m of altitude."""
    for number in range(10_000):
        low_m = lowest_m + random.randint(0, 900)  # noqa: S311
        where = f"topic = 't{number % TOPICS}' AND altitude_m BETWEEN {low_m} AND {low_m + 100}"
        yield Registered(key=f"{name}-{number}", channel="uav/#", where=where)


def tracks(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").option("rowsPerSecond", "500").load()
    return rate.selectExpr(
        "'uav/track' AS channel",
        f"concat('t', pmod(value, {TOPICS})) AS topic",
        "pmod(hash(value), 10000) AS altitude_m",
        "encode(concat('track ', value), 'UTF-8') AS payload",
    )


def show(spark: SparkSession) -> None:
    """How many matches each of the two sets of predicates has found so far."""
    of_set = F.split_part(F.col("predicate"), F.lit("-"), F.lit(1)).alias("predicates")
    spark.table("matches").groupBy(of_set).agg(
        F.count("*").alias("matches"), F.first("channel").alias("such as")
    ).show(truncate=False)


if __name__ == "__main__":
    main()
