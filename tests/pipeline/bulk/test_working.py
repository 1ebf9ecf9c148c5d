from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from accord.pipeline.bulk import working
from accord.pipeline.bulk.compiling import Registered, compile_set
from accord.pipeline.bulk.folder import PredicateFolder
from accord.pipeline.bulk.storing import pack
from accord.pipeline.bulk.working import Carried, Looked, Work

_ROWS = 100


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    working._kept.clear()
    yield
    working._kept.clear()


def _batches(size: int) -> list[pa.RecordBatch]:
    table = pa.table({"channel": pa.repeat("bus", _ROWS), "x": range(_ROWS)})
    return [*table.to_batches(max_chunksize=size)]


def _carried(*limits: int) -> Carried:
    predicates = compile_set([Registered(key=f"{n}", where=f"x < {n}") for n in limits])
    return Carried(predicates.version, pack(predicates))


@pytest.mark.parametrize("size", [1, 7, _ROWS])
@pytest.mark.parametrize("out_rows", [1, 3, 1 << 16])
def test_a_row_for_each_match_however_batches_come(
    size: int, out_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_ROWS", 10)
    monkeypatch.setattr(working, "_OUT_ROWS", out_rows)
    work = Work(_carried(2, 50), ("x",), ("x",), is_list=False)
    batches = [*work(_batches(size))]
    assert all(0 < len(batch) <= out_rows for batch in batches)
    found = sorted((row["x"], row["predicate"]) for batch in batches for row in batch.to_pylist())
    assert found == sorted([(0, "2"), (1, "2"), *((x, "50") for x in range(50))])


@pytest.mark.parametrize("listed", [1, 30, 1 << 20])
def test_a_list_for_each_event(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "_LISTED", listed)
    monkeypatch.setattr(working, "_FIRST_LISTED", 7)
    work = Work(_carried(2, 50), ("x",), ("x",), is_list=True)
    rows = [row for batch in work(_batches(10)) for row in batch.to_pylist()]
    assert [row["x"] for row in rows] == [*range(_ROWS)]
    assert [row["predicates"] for row in rows[:3]] == [["2", "50"], ["2", "50"], ["50"]]
    assert all(row["predicates"] == [] for row in rows[50:])


def test_predicates_are_unpacked_once() -> None:
    first = _carried(2).matcher()
    assert _carried(2).matcher() is first
    others = [_carried(limit).matcher() for limit in (3, 4)]
    assert others[0] is not first
    assert len(working._kept) == 2
    assert _carried(2).matcher() is not first  # only the last two are kept


def test_a_newer_version_is_taken_up(tmp_path: Path) -> None:
    folder = PredicateFolder(tmp_path)
    folder.publish(compile_set([Registered(key="first")]))
    origin = Looked(str(tmp_path))
    first = origin.matcher()
    assert origin.matcher() is first
    folder.publish(compile_set([Registered(key="second")]))
    assert origin.matcher().predicates.keys.to_pylist() == ["second"]


def test_no_events_are_no_matches() -> None:
    empty = _batches(_ROWS)[0].slice(0, 0)
    for is_list in (False, True):
        assert [*Work(_carried(2), ("x",), ("x",), is_list)([empty])] == []
