from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.archives import NODE, archive_slices
from tests.pipeline.journals import START_MS, ledger_record, write_journal

from accord.core.mqtt.properties import Properties, encode_properties
from accord.core.mqtt.wire import read_varint
from accord.journal.events import KeptEvent
from accord.pipeline import spark_tables, tables
from accord.pipeline.delta_log import Archive
from accord.pipeline.maintenance import Compaction, compact
from accord.pipeline.storage import Storage
from accord.pipeline.tables import TablesError

ALTITUDES = ("5", "2.5", "-0.0", "9007199254740993", "high", "true", "1e300", "9223372036854775808")


def kept(number: int, *pairs: tuple[str, str]) -> bytes:
    encoded = encode_properties(Properties(user=pairs))
    block = encoded[read_varint(encoded, 0, len(encoded))[1] :]
    return msgspec.msgpack.encode(
        KeptEvent(START_MS + number, "uav/1", "p", 1, -1, block, b"%d" % number, number)
    )


def archive(
    tmp_path: Path, commits: list[tuple[list[bytes], dict[str, str]]], *, name: str = "archive"
) -> Archive:
    """Each commit archived with its own declaration."""
    folder = tmp_path / name
    write_journal(folder / "journal", [records for records, _ in commits])
    made = Archive(folder / "archive", [NODE])
    end = 0
    for commit, declared in commits:
        end += len(commit)
        archive_slices(folder, end, archive=made, declared=declared)
    return made


def events(spark: SparkSession, made: Archive) -> DataFrame:
    return spark_tables.events(spark, made.storage, made.events.snapshot())


def ledger(spark: SparkSession, made: Archive) -> DataFrame:
    return spark_tables.ledger(spark, made.storage, made.ledger.snapshot())


def test_days_are_those_of_utc() -> None:
    assert tables.day_of(START_MS) == "2025-11-16"
    assert tables.day_of(-5) == "1970-01-01"
    assert tables.day_of(2**63) == "9999-12-31"
    assert tables.day_of(tables.day_end_ms("2025-11-16") - 1) == "2025-11-16"
    assert tables.day_of(tables.day_end_ms("2025-11-16")) == "2025-11-17"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"a": "number"}, "'a': expected integer, float, string, boolean, timestamp, got 'number'"),
        ({"Payload": "string"}, "there is a column 'payload'"),
        ({"day": "string"}, "there is a column 'day'"),
        ({"a": "string", "A": "string"}, "'A': there is a column 'a'"),
        ({"": "string"}, "expected an attribute's name"),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused(
    declared: Mapping[str, str], problem: str
) -> None:
    with pytest.raises(TablesError, match=problem):
        tables.check_declared(declared)
    tables.check_declared({"altitude_m": "float", "an odd `name`": "string"})


def test_an_attribute_keeps_its_column_and_gets_another_for_another_type() -> None:
    first = tables.columns_for({"a b": "integer", "a_b": "string", "A_B": "float"}, ())
    assert [each.name for each in first] == ["a_b", "a_b_string", "A_B_float"]
    again = tables.columns_for({"a_b": "string", "a b": "float", "payload!": "string"}, first)
    assert [each.name for each in again] == ["a_b_string", "a_b_float_2", "payload_"]
    schema = tables.arrow_events((*first, again[2]))
    assert tables.columns_of_schema(schema) == (*first, again[2])


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["a", "A", "a b", "a_b", "payload", "day"]),
            st.sampled_from(list(tables.ARROW)),
            max_size=4,
        ),
        max_size=4,
    )
)
def test_columns_have_names_of_their_own(declarations: list[dict[str, str]]) -> None:
    present: tables.Columns = ()
    for declared in declarations:
        found = tables.columns_for(declared, present)
        assert [(each.attribute, each.kind) for each in found] == list(declared.items())
        present += tuple(each for each in found if each not in present)
    taken = [each.name.lower() for each in present] + [name.lower() for name in tables.COLUMNS]
    assert len(set(taken)) == len(taken)


def test_a_reference_leads_to_a_payload_and_nowhere_else(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    ref = tables.payload_ref("../n", 7, START_MS)
    former = "payloads/day=2025-11-16/n-7"
    for path in (ref, former):
        storage.write(path, b"large")
        assert storage.read_payload(path) == b"large"
    with pytest.raises(TablesError, match="not kept any more"):
        storage.read_payload(ref + "1")
    for bad in ("../secret", "payloads/../secret", "events/_payloads/day=2025-11-16/../x", ""):
        with pytest.raises(TablesError, match="expected a reference to a payload"):
            storage.read_payload(bad)


def test_an_archive_without_files_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    made = Archive(tmp_path / "archive", [NODE])
    assert events(spark, made).count() == 0
    made.events.columns({"a": "float"})
    assert events(spark, made).columns[10] == "a"
    assert ledger(spark, made).columns == tables.arrow_ledger().names


def test_both_tables_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    xml = ("metadata", "<r><n>1</n><n>2</n></r>")
    records = [kept(1, ("altitude", "300"), ("seen", "2026-11-16T08:00:00Z")), kept(2, xml)]
    made = archive(tmp_path, [([*records, ledger_record(7, 2)], {"altitude": "integer"})])
    frame = events(spark, made)
    assert frame.schema == spark_tables.spark_events(made.events.snapshot().columns)
    first, second = frame.orderBy("offset").collect()
    assert (first.node, first.number, first.channel, first.altitude) == (NODE, 1, "uav/1", 300)
    assert first.received.astimezone(UTC) == datetime.fromtimestamp((START_MS + 1) / 1000, UTC)
    assert first.attributes["seen"].timestamp.astimezone(UTC).hour == 8
    assert (first.payload, first.payload_bytes) == (b"1", 1)
    assert str(first.day) == "2025-11-16"
    assert second.paths["/r/n"] == ["1", "2"]
    assert bytes(second.metadata).decode() == xml[1]
    rows = ledger(spark, made).orderBy("number").collect()
    assert [(row.number, row.id, row.outcome, row.offset) for row in rows] == [
        (7, "7", "delivered", 2),
        (8, "8", "delivered", 2),
    ]


def test_a_day_is_that_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """Also just before midnight of UTC, whatever the session's time zone."""
    last = KeptEvent(START_MS + 16 * 3_600_000 - 1, "a", "p", 0, -1, b"", b"", 1)
    made = archive(tmp_path, [([msgspec.msgpack.encode(last)], {})])
    (row,) = events(spark, made).collect()
    assert str(row.day) == made.events.snapshot().files[0].day == "2025-11-16"


def test_compacted_files_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    commits = [([kept(n, ("a", str(n)))], {"a": "integer"}) for n in range(3)]
    made = archive(tmp_path, [*commits, ([ledger_record(7, 2)], {})])
    before = sorted(map(repr, events(spark, made).collect()))
    snapshot = made.events.snapshot()
    job = Compaction(
        archive=made.place, table="events", columns=snapshot.columns, files=snapshot.files
    )
    done = compact(job)
    assert done is not None
    made.events.replace(snapshot.files, [done.file])
    assert sorted(map(repr, events(spark, made).collect())) == before
    assert events(spark, made).where("number = 1").count() == 1


def test_an_attributes_value_is_in_one_of_its_columns_or_in_the_map(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever was declared when an event was archived, and whether the value fits."""
    commit = [kept(n, ("altitude", text), ("b", str(n))) for n, text in enumerate(ALTITUDES)]
    plain = archive(tmp_path, [(commit, {})], name="plain")
    expected = [
        row.attributes["altitude"] for row in events(spark, plain).orderBy("offset").collect()
    ]
    kinds: list[dict[str, str]] = [{}, *({"altitude": k} for k in ("integer", "float", "boolean"))]
    made = archive(tmp_path, [(commit, declared) for declared in kinds])
    columns = made.events.snapshot().columns
    assert [each.name for each in columns] == ["altitude", "altitude_float", "altitude_boolean"]
    rows = events(spark, made).orderBy("offset").collect()
    for row in rows:
        own = [row[each.name] for each in columns if row[each.name] is not None]
        in_map = [v for v in row.attributes.get("altitude") or () if v is not None]
        wanted = [v for v in expected[row.offset % len(ALTITUDES)] if v is not None]
        assert own + in_map == wanted
        assert row.attributes["b"].integer == row.number
    whole = spark_tables.with_all_attributes(events(spark, made), columns)
    for row in whole.orderBy("offset").collect():
        found = [v for v in row.attributes["altitude"] if v is not None]
        assert found == [v for v in expected[row.offset % len(ALTITUDES)] if v is not None]


def test_readers_that_know_nothing_of_us_take_the_same_table(tmp_path: Path) -> None:
    made = archive(tmp_path, [([kept(1, ("a", "5")), kept(2)], {"a": "integer"})])
    table = DeltaTable(f"{made.place}/events").to_pyarrow_table()
    assert set(table.column_names) == set(tables.arrow_events(made.events.snapshot().columns).names)
    assert sorted(table["number"].to_pylist()) == [1, 2]
    assert table["a"].to_pylist() == [5, None]
    (file,) = made.events.snapshot().files
    with pq.ParquetFile(f"{made.place}/events/{file.path}") as read:
        schema = tables.arrow_events(made.events.snapshot().columns)
        assert read.schema_arrow.equals(schema.remove(schema.get_field_index("day")))
