from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from accord.pipeline.manifest import Manifest
from accord.pipeline.slices import SliceJob, write_slice
from pyspark.sql import SparkSession
from tests.pipeline.journals import START_MS, ledger_record, write_journal

from accord.core.mqtt.properties import Properties, encode_properties
from accord.core.mqtt.wire import read_varint
from accord.journal.events import KeptEvent
from accord.pipeline import tables
from accord.pipeline.attributes import TYPES, schema
from accord.pipeline.housekeeping import compact
from accord.pipeline.query.spark_predicate import to_column
from accord.pipeline.tables import FileEntry, TablesError
from accord.predicates import parse

ALTITUDES = ("5", "2.5", "-0.0", "9007199254740993", "high", "true", "1e300", "9223372036854775808")


def kept(number: int, *pairs: tuple[str, str]) -> bytes:
    encoded = encode_properties(Properties(user=pairs))
    block = encoded[read_varint(encoded, 0, len(encoded))[1] :]
    return msgspec.msgpack.encode(
        KeptEvent(START_MS + number, "uav/1", "p", 1, -1, block, b"%d" % number, number)
    )


def archive(
    tmp_path: Path, commits: list[tuple[list[bytes], dict[str, str]]], *, name: str = "archive"
) -> Path:
    """Each commit archived with its own declaration."""
    folder = tmp_path / name
    journal = write_journal(folder / "journal", [records for records, _ in commits])
    manifest = Manifest(folder)
    first = 0
    for records, declared in commits:
        end = first + len(records)
        job = SliceJob(
            node="here", journal=str(journal), first=first, next=end, archive=str(folder),
            declared=declared,
        )  # fmt: skip
        manifest.commit(added=write_slice(job), moved={"here": (first, end)})
        first = end
    return folder


def test_channels_have_groups() -> None:
    assert tables.group_of("uav/1/imagery") == tables.group_of("uav") == "uav"
    assert tables.group_of("UAV-2_x/1") == "UAV-2_x"
    for channel in ("", "a b/1", "x" * 41, "../etc", "_other/1", "$sys/a", "é", "a=b"):
        assert tables.group_of(channel)[0] == "_"
        assert len(tables.group_of(channel)) == 3


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
        ({"group": "string"}, "there is a column 'group'"),
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


def test_a_reference_leads_to_a_payload_and_nowhere_else(tmp_path: Path) -> None:
    ref = tables.payload_ref("../n", 7, START_MS)
    (tmp_path / ref).parent.mkdir(parents=True)
    (tmp_path / ref).write_bytes(b"large")
    assert tables.read_payload(tmp_path, ref) == b"large"
    with pytest.raises(TablesError, match="not kept any more"):
        tables.read_payload(tmp_path, ref + "1")
    for bad in ("../secret", "payloads/../secret", "payloads/day=2025-11-16/../x", ""):
        with pytest.raises(TablesError, match="expected a reference to a payload"):
            tables.read_payload(tmp_path, bad)


def test_columns_for_predicates_are_those_of_attributes() -> None:
    declared = {"a": "integer", "b": "timestamp"}
    mine = {field.name: field.dataType for field in tables.spark_events(declared)}
    for field in schema({name: TYPES[kind] for name, kind in declared.items()}):
        assert mine[field.name] == field.dataType


def test_the_newest_type_of_an_attribute_counts() -> None:
    def file(last_ms: int, declared: dict[str, str]) -> FileEntry:
        return FileEntry(
            table="events", path="", day="", rows=1, bytes=1, node="n", last_ms=last_ms,
            first_offset=0, last_offset=0, declared=declared,
        )  # fmt: skip

    files = [file(9, {"a": "float"}), file(5, {"a": "integer", "b": "string"})]
    assert tables.newest_declared(files) == {"a": "float", "b": "string"}
    assert [declared for declared, _ in tables.by_declared([*files, files[0]])] == [
        {"a": "float"},
        {"a": "integer", "b": "string"},
    ]


def test_an_archive_without_files_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    assert tables.events(spark, tmp_path).count() == 0
    assert tables.events(spark, tmp_path, declared={"a": "float"}).columns[10] == "a"
    assert tables.ledger(spark, tmp_path).columns == tables.arrow_ledger().names


def test_both_tables_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    xml = ("metadata", "<r><n>1</n><n>2</n></r>")
    records = [kept(1, ("altitude", "300"), ("seen", "2026-11-16T08:00:00Z")), kept(2, xml)]
    folder = archive(tmp_path, [([*records, ledger_record(7, 2)], {"altitude": "integer"})])
    frame = tables.events(spark, folder)
    assert frame.schema == tables.spark_events({"altitude": "integer"})
    first, second = frame.orderBy("offset").collect()
    assert (first.node, first.number, first.channel, first.altitude) == ("here", 1, "uav/1", 300)
    assert first.received.astimezone(UTC) == datetime.fromtimestamp((START_MS + 1) / 1000, UTC)
    assert first.attributes["seen"].timestamp.astimezone(UTC).hour == 8
    assert (first.payload, first.payload_bytes, first.group) == (b"1", 1, "uav")
    assert str(first.day) == "2025-11-16"
    assert second.paths["/r/n"] == ["1", "2"]
    assert bytes(second.metadata).decode() == xml[1]
    rows = tables.ledger(spark, folder).orderBy("number").collect()
    assert [(row.number, row.id, row.outcome, row.offset) for row in rows] == [
        (7, "7", "delivered", 2),
        (8, "8", "delivered", 2),
    ]


def test_compacted_files_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    commits = [([kept(n, ("a", str(n)))], {"a": "integer"}) for n in range(3)]
    folder = archive(tmp_path, [*commits, ([ledger_record(7, 2)], {})])
    manifest = Manifest(folder)
    before = sorted(map(repr, tables.events(spark, folder).collect()))
    files = [each for each in manifest.snapshot().files if each.table == "events"]
    manifest.commit(added=compact(folder, files), removed=[each.path for each in files])
    assert sorted(map(repr, tables.events(spark, folder).collect())) == before
    assert tables.events(spark, folder).where("number = 1").count() == 1


def values(attributes: Mapping[str, Any]) -> dict[str, tuple[bool, Any]]:
    """A column may have made 5 of 5.0; it has not made 1 of true."""
    found = {name: [v for v in row or () if v is not None] for name, row in attributes.items()}
    return {name: (bool in map(type, some), some) for name, some in found.items()}


def test_declarations_may_change(spark: SparkSession, tmp_path: Path) -> None:
    """A table over files of several declarations is as if all had the one that is wanted."""
    records = [kept(n, ("altitude", text), ("b", str(n))) for n, text in enumerate(ALTITUDES)]
    kinds: list[dict[str, str]] = [{}, *({"altitude": k} for k in ("integer", "float", "boolean"))]
    mixed = archive(tmp_path, [(records, declared) for declared in kinds])
    for kind in ("integer", "float"):
        wanted = {"altitude": kind}
        alike = archive(tmp_path, [(records, wanted) for _ in kinds], name=kind)
        frame = tables.events(spark, mixed, declared=wanted)
        assert frame.schema == tables.spark_events(wanted)
        got, expected = (
            each.orderBy("offset").select("offset", "altitude", "attributes").collect()
            for each in (frame, tables.events(spark, alike))
        )
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.altitude == theirs.altitude, (kind, mine)
            assert type(mine.altitude) is type(theirs.altitude)
            held = {} if mine.altitude is None else {"altitude": mine.attributes.get("altitude")}
            assert values(mine.attributes | held) == values(theirs.attributes | held)
    assert tables.events(spark, mixed).schema["altitude"].dataType == TYPES["boolean"]


def test_conditions_find_declared_attributes_wherever_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    records = [kept(n, ("altitude", str(100 * n))) for n in range(4)]
    folder = archive(tmp_path, [(records, {}), (records, {"altitude": "float"})])
    declared = {"altitude": TYPES["float"]}
    found = tables.events(spark, folder).where(to_column(parse("altitude > 150"), declared))
    assert sorted(row.number for row in found.collect()) == [2, 2, 3, 3]


def test_readers_other_than_spark_take_the_same_files(tmp_path: Path) -> None:
    folder = archive(tmp_path, [([kept(1, ("a", "5")), kept(2)], {})])
    (file,) = Manifest(folder).snapshot().files
    table: Any = pq.ParquetFile(folder / file.path).read()
    assert table.schema == tables.arrow_events({})
