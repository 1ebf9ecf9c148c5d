from __future__ import annotations

from pyspark.sql import SparkSession
from tests.pipeline.frames import at, entry, event, event_frame, ledger_frame

from accord.pipeline.datasets.losses import channel_rates, source_use


def test_use_of_sources(spark: SparkSession) -> None:
    events = event_frame(
        spark,
        event(0),
        event(9_000, payload_bytes=300),
        event(1_000, publisher="uav-2"),
    )
    ledger = ledger_frame(
        spark,
        entry(count=2),
        entry("late", destination="b"),
        entry("expired", destination="b"),
        entry(publisher="clerk", channel="", count=7),
    )
    rows = source_use(events, ledger, seconds=10).orderBy("publisher").collect()
    columns = ("publisher", "channel", "events", "bytes", "rate_hz", "delivered", "destinations")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("clerk", "", 0, 0, 0.0, 7, 1),
        ("uav-1", "uav/imagery", 2, 400, 0.2, 3, 2),
        ("uav-2", "uav/imagery", 1, 100, 0.1, 0, 0),
    ]
    assert rows[0]["last"] is None
    assert rows[1]["last"].timestamp() == at(9_000).timestamp()


def test_rates_of_channels_minute_by_minute(spark: SparkSession) -> None:
    # The start is at 20 s past the minute.
    frame = event_frame(spark, event(0), event(39_999), event(40_000), event(0, channel="b"))
    rows = channel_rates(frame, every_s=60).orderBy("channel", "at").collect()
    found = [(row["channel"], row["at"].timestamp(), row["events"]) for row in rows]
    first, second = at(-20_000).timestamp(), at(40_000).timestamp()
    assert found == [("b", first, 1), ("uav/imagery", first, 2), ("uav/imagery", second, 1)]
    assert rows[1]["bytes_per_s"] == 200 / 60
