from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.frames import at

from accord.pipeline.datasets.availability import availability, sightings_of


def _sightings(spark: SparkSession, **seen: str) -> DataFrame:
    """A sighting each second: + is up, - is down, a space is none."""
    rows: list[dict[str, Any]] = [
        {"subject": subject, "at": at(second * 1_000), "is_up": sign == "+"}
        for subject, signs in seen.items()
        for second, sign in enumerate(signs)
        if sign != " "
    ]
    kind = pa.schema(
        {"subject": pa.string(), "at": pa.timestamp("us", "UTC"), "is_up": pa.bool_()}.items()
    )
    # Not in the order of time, as tables are not.
    return spark.createDataFrame(pa.Table.from_pylist(rows[::-1], kind))


def test_a_link_is_down_when_three_pings_in_a_row_are_missed(spark: SparkSession) -> None:
    frame = _sightings(spark, good="+-+--+++++", bad="+---++----+", dead="---", young="+")
    found = {row["subject"]: row for row in availability(frame).collect()}
    good, bad, dead, young = (found[name] for name in ("good", "bad", "dead", "young"))
    assert (good["sightings"], good["missed"], good["failures"]) == (10, 3, 0)
    assert (good["availability"], good["mean_up_s"]) == (1.0, None)
    assert good["failure_probability"] == 1 / 12
    assert (bad["failures"], bad["watched_s"], bad["down_s"]) == (2, 10.0, 7.0)
    assert (bad["availability"], bad["mean_up_s"], bad["mean_down_s"]) == (0.3, 1.5, 3.5)
    assert bad["failure_probability"] == 8 / 13
    assert (dead["availability"], dead["failures"]) == (0.0, 1)
    assert (young["availability"], young["failure_probability"]) == (None, 1 / 3)


def test_nobody_looked_for_longer_than_the_gap(spark: SparkSession) -> None:
    frame = _sightings(spark, a="+" + " " * 99 + "--")
    (row,) = availability(frame, missed=1, gap_s=10).collect()
    assert (row["watched_s"], row["down_s"]) == (11.0, 1.0)


def test_pings_that_were_counted_are_sightings(spark: SparkSession) -> None:
    pings = spark.createDataFrame(
        pa.table({"subject": ["a"] * 3, "at": [at(n) for n in range(3)], "sent": [0, 2, 2]})
    ).selectExpr("*", "sent - 2 + unix_millis(at) % 2 AS answered")
    rows = sightings_of(pings).orderBy("at").collect()
    assert [row["is_up"] for row in rows] == [True, False]
