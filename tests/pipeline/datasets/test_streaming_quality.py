from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.pipeline.frames import at, entry, ledger_frame

from accord.pipeline.datasets.quality import live_quality


def test_a_stretch_of_time_comes_once_it_is_over(spark: SparkSession, tmp_path: Path) -> None:
    def write(*entries: dict[str, object]) -> None:
        ledger_frame(spark, *entries).coalesce(1).write.mode("append").parquet(f"{tmp_path}/in")

    write(entry(waited_ms=30, count=19), entry("expired", waited_ms=40), entry(channel="b"))
    schema = spark.read.parquet(f"{tmp_path}/in").schema
    stream = spark.readStream.schema(schema).parquet(f"{tmp_path}/in")
    query = (
        live_quality(stream, "channel", every_s=10, wait_s=5)
        .writeStream.format("memory")
        .queryName("live_quality")
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .start()
    )
    try:
        query.processAllAvailable()
        assert spark.table("live_quality").collect() == []
        write(entry(received_ms=15_000), entry(received_ms=4_000, waited_ms=30))
        query.processAllAvailable()
        rows = spark.table("live_quality").orderBy("channel").collect()
    finally:
        query.stop()
    assert [row["channel"] for row in rows] == ["b", "uav/imagery"]
    row = rows[1]
    assert row["at"].timestamp() == at(0).timestamp()
    assert (row["events"], row["delivered"], row["expired"]) == (21, 20, 1)
    assert (row["rate_hz"], row["latency_p99_ms"], row["in_time"]) == (2.0, 30, 20 / 21)
