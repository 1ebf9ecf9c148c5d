from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.pipeline.frames import START_MS, entry, event, event_frame, ledger_frame

from accord.core.model.channels import filter_selects, filter_shows
from accord.pipeline.datasets.losses import between, of_channels, selects, shows

CHANNELS = (
    *("uav", "uav/imagery", "uav/imagery/raw", "uav/", "/uav", "uavs", "uav.imagery", "a+b"),
    *("accord-response/ann/1", "accord-response"),
    *("$SYS/up", "$SYS", "cas/image", "uav/x\ny", "UAV/imagery", "uav/imagery\n"),
)
FILTERS = (
    *("#", "+", "+/imagery", "uav/#", "uav/+", "uav/+/raw", "uav", "+/+/#", "uav/imagery"),
    *("accord-response/#", "accord-response/ann/1"),
    *("$SYS/#", "$SYS/+", "/+", "+/#", "uav/imagery/#", "cas/+/#"),
)


@pytest.mark.parametrize(("column", "function"), [(selects, filter_selects), (shows, filter_shows)])
def test_filters_select_what_they_select_in_the_live_system(
    spark: SparkSession, column: Callable[[str], Column], function: Callable[[str, str], bool]
) -> None:
    frame = event_frame(spark, *(event(channel=channel) for channel in CHANNELS))
    answers = [column(pattern).alias(f"f{index}") for index, pattern in enumerate(FILTERS)]
    for row in frame.select("channel", *answers).collect():
        for index, pattern in enumerate(FILTERS):
            expected = function(pattern, row["channel"])
            assert row[f"f{index}"] == expected, (pattern, row["channel"])


def test_what_is_no_filter_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="channel: expected '#' as the last level"):
        selects("a/#/b")


def test_a_run_of_several_channels_is_part_of_whatever_is_asked_for(spark: SparkSession) -> None:
    ledger = ledger_frame(spark, entry(channel=""), entry(channel="b"), entry())
    found = of_channels(ledger, "uav/#").select("channel").orderBy("channel").collect()
    assert [row["channel"] for row in found] == ["", "uav/imagery"]


def test_a_stretch_of_time_has_its_beginning_but_not_its_end(spark: SparkSession) -> None:
    frame = event_frame(spark, *(event(ms) for ms in (-1, 0, 9, 10)))
    found = between(frame, "received", START_MS, START_MS + 10)
    times = found.select(F.unix_millis("received") - START_MS).collect()
    assert [time for (time,) in times] == [0, 9]
