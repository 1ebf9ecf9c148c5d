"""The outcomes of one event from the archive, as a search of the node's ledger finds them."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import msgspec
from pyspark.sql import SparkSession
from tests.pipeline.journals import ledger_record
from tests.pipeline.test_tables import archive

from accord.journal.ledger_records import (
    ArchivedEntry,
    LedgerQuery,
    LedgerSearch,
    decode_ledger,
)
from accord.pipeline.query.ledger import find_outcomes
from accord.pipeline.manifest import Manifest


def found(spark: SparkSession, folder: Path, number: int, most: int = 100) -> list[ArchivedEntry]:
    body = find_outcomes(spark, str(folder), Manifest(folder).snapshot(), number, most)
    return msgspec.msgpack.decode(body, type=list[ArchivedEntry])


def test_an_event_has_the_same_outcomes_as_in_the_ledger(
    spark: SparkSession, tmp_path: Path
) -> None:
    record = ledger_record(7, 20)
    folder = archive(tmp_path, [([record], {}), ([ledger_record(5_000, 3)], {})])
    search = LedgerSearch(LedgerQuery(number=9), 100)
    search.scan(decode_ledger(record))
    rows = found(spark, folder, 9)
    assert [each.entry for each in rows] == search.entries
    assert len(rows) == 1
    assert rows[0].node
    assert found(spark, folder, 5_001)[0].entry.number == 5_001
    assert found(spark, folder, 4_000) == []
    assert found(spark, folder, 0) == []


def test_it_takes_less_than_a_second_and_a_half(spark: SparkSession, tmp_path: Path) -> None:
    records = [ledger_record(1 + 1_000 * place, 1_000) for place in range(100)]
    folder = archive(tmp_path, [(records, {})])
    spent: list[float] = []
    for number in (5, 50_000, 99_999, 77_777, 12_345):
        began_s = time.perf_counter()
        assert [each.entry.number for each in found(spark, folder, number)] == [number]
        spent.append(time.perf_counter() - began_s)
    assert median(spent) < 1.5, spent
