from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from accord.pipeline.bulk import matcher, spark_worker
from accord.pipeline.bulk.packed_sets import pack
from accord.pipeline.bulk.predicate_compiler import Registered, compile_set
from accord.pipeline.bulk.predicate_folder import PredicateFolder
from accord.pipeline.bulk.spark_worker import (
    BrokeringError,
    EmbeddedPredicates,
    FolderPredicates,
    MatchTask,
)

_ROWS = 100


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    spark_worker._matchers.clear()
    yield
    spark_worker._matchers.clear()


def _batches(size: int) -> list[pa.RecordBatch]:
    table = pa.table({"channel": pa.repeat("bus", _ROWS), "x": range(_ROWS)})
    return [*table.to_batches(max_chunksize=size)]


def _embedded(*limits: int) -> EmbeddedPredicates:
    predicates = compile_set([Registered(key=f"{n}", where=f"x < {n}") for n in limits])
    return EmbeddedPredicates(predicates.version, pack(predicates))


@pytest.mark.parametrize("size", [1, 7, _ROWS])
@pytest.mark.parametrize("out_rows", [1, 3, 1 << 16])
def test_a_row_for_each_match_however_batches_come(
    size: int, out_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_worker, "_ROWS", 10)
    monkeypatch.setattr(spark_worker, "_OUT_ROWS", out_rows)
    task = MatchTask(_embedded(2, 50), ("x",), {}, ("x",), is_list=False)
    batches = [*task(_batches(size))]
    assert all(0 < len(batch) <= out_rows for batch in batches)
    found = sorted((row["x"], row["predicate"]) for batch in batches for row in batch.to_pylist())
    assert found == sorted([(0, "2"), (1, "2"), *((x, "50") for x in range(50))])


@pytest.mark.parametrize("listed", [1, 30, 1 << 20])
def test_a_list_for_each_event(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "_MAX_PAIRS", listed)
    task = MatchTask(_embedded(2, 50), ("x",), {}, ("x",), is_list=True)
    rows = [row for batch in task(_batches(10)) for row in batch.to_pylist()]
    assert [row["x"] for row in rows] == [*range(_ROWS)]
    assert [row["predicates"] for row in rows[:3]] == [["2", "50"], ["2", "50"], ["50"]]
    assert all(row["predicates"] == [] for row in rows[50:])


def test_predicates_are_unpacked_once() -> None:
    first = _embedded(2).matcher()
    assert _embedded(2).matcher() is first
    others = [_embedded(limit).matcher() for limit in (3, 4)]
    assert others[0] is not first
    assert len(spark_worker._matchers) == 2
    assert _embedded(2).matcher() is not first  # only the last two are kept


def test_a_newer_version_is_taken_up(tmp_path: Path) -> None:
    folder = PredicateFolder(tmp_path)
    folder.publish(compile_set([Registered(key="first")]))
    source = FolderPredicates(str(tmp_path))
    first = source.matcher()
    assert source.matcher() is first
    folder.publish(compile_set([Registered(key="second")]))
    assert source.matcher().predicates.keys.to_pylist() == ["second"]


def test_no_events_are_no_matches() -> None:
    empty = _batches(_ROWS)[0].slice(0, 0)
    for is_list in (False, True):
        assert [*MatchTask(_embedded(2), ("x",), {}, ("x",), is_list)([empty])] == []


def test_a_newer_version_may_not_refer_to_columns_that_are_no_attributes(tmp_path: Path) -> None:
    folder = PredicateFolder(tmp_path)
    folder.publish(compile_set([Registered(key="a", where="x = 1")]))
    task = MatchTask(FolderPredicates(str(tmp_path)), ("x",), {"y": "array<int>"}, ("x",), False)
    assert len([*task(_batches(_ROWS))]) == 1
    folder.publish(compile_set([Registered(key="a", where="y = 1")]))
    with pytest.raises(BrokeringError, match=r"y: a predicate refers .* got array<int>"):
        [*task(_batches(_ROWS))]
