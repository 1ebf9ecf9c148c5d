from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from accord.journal.record import MAX_OFFSET
from accord.pipeline.source_options import OptionError, ReadOptions

NOW_MS = 1_763_280_000_000


def read(**options: str) -> ReadOptions:
    return ReadOptions.of(CaseInsensitiveDict(options), now_ms=NOW_MS)


def test_a_path_is_enough() -> None:
    options = read(path="data/journal")
    assert options == ReadOptions(journals={"": "data/journal"})
    assert options.schema().fieldNames()[:3] == ["node", "offset", "number"]


def test_options_are_read_in_any_case() -> None:
    options = read(
        journals='{"a": "x", "b": "http://host:8080"}',
        TABLE="ledger",
        from_offset="10",
        before_offset="20",
        maxrowspertrigger="5",
        FailOnLoss="False",
    )
    assert options == ReadOptions(
        journals={"a": "x", "b": "http://host:8080"},
        table="ledger",
        from_offset=10,
        before_offset=20,
        max_rows=5,
        is_strict=False,
    )
    assert "outcome" in options.schema().fieldNames()


def test_events_may_be_asked_for_by_channel_and_time() -> None:
    options = read(path="x", channel="uav/#", since="-1h", until="2025-11-16T08:00:00Z")
    assert options == ReadOptions(
        journals={"": "x"}, channel="uav/#", since_ms=NOW_MS - 3_600_000, until_ms=NOW_MS
    )


def test_a_stream_may_begin_with_the_latest() -> None:
    options = read(path="x", from_offset="latest")
    assert options.is_latest
    assert options.from_offset is None
    assert options.before_offset == MAX_OFFSET


def test_columns_come_in_the_order_of_the_table() -> None:
    options = read(path="x", columns="payload, channel,offset", declared='{"altitude_m": "float"}')
    assert options.schema().fieldNames() == ["offset", "channel", "payload"]
    assert "altitude_m" in read(path="x", declared='{"altitude_m": "float"}').schema().fieldNames()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option path: expected a journal's folder or a node's URL"),
        ({"path": "x", "journals": "{}"}, "option journals: expected either"),
        ({"journals": "{}"}, "option journals: expected"),
        ({"journals": '{"a": ""}'}, "option journals: expected"),
        ({"journals": "[1]"}, "option journals: expected a JSON object"),
        ({"path": "x", "table": "events2"}, "option table: expected events or ledger"),
        ({"path": "x", "from_offset": "-1"}, "option from_offset: expected a whole number"),
        ({"path": "x", "before_offset": "9" * 30}, "option before_offset: expected"),
        ({"path": "x", "maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger: expected"),
        ({"path": "x", "failOnLoss": "perhaps"}, "option failOnLoss: expected true or false"),
        ({"path": "x", "channel": "a/#/b"}, "option channel: "),
        ({"path": "x", "since": "yesterday"}, "option since: expected a time such as"),
        ({"path": "x", "table": "ledger", "since": "-1h"}, "option since: is for the table"),
        ({"path": "x", "declared": '{"channel": "string"}'}, "option declared: "),
        ({"path": "x", "declared": '{"a": "decimal"}'}, "option declared: "),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(**options)
    assert str(caught.value).startswith(told)


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(OptionError, match="option columns: expected some of node, offset"):
        read(path="x", columns="altitude").schema()
