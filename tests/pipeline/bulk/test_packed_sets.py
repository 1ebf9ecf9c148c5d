from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.bulk.batches import Sample, found_in_bulk

from accord.pipeline.bulk.packed_sets import PackError, pack, unpack, unpack_file
from accord.pipeline.bulk.predicate_compiler import PredicateSet, Registered, compile_set


@pytest.fixture
def predicates() -> PredicateSet:
    plain = [Registered(key=f"plain-{n}", where=f"x > {n} AND y = 'a'") for n in range(300)]
    return compile_set([*plain, Registered(key="other", where="x IS NULL OR y LIKE 'b%'")])


def test_what_is_unpacked_finds_the_same(predicates: PredicateSet, tmp_path: Path) -> None:
    path = tmp_path / "predicates"
    path.write_bytes(pack(predicates))
    samples: list[Sample] = [("bus", {"x": 7, "y": "a"}, None), ("bus", {"y": "bc"}, None)]
    expected = [{f"plain-{n}" for n in range(7)}, {"other"}]
    for found in (predicates, unpack(pack(predicates)), unpack_file(path)):
        assert found_in_bulk(found, samples, {}) == expected
        assert found.version == predicates.version


def test_arrays_are_used_where_they_are(predicates: PredicateSet) -> None:
    data = pack(predicates)
    whole = np.frombuffer(data, np.uint8)
    (table,) = unpack(data).tables
    assert np.shares_memory(table.lows, whole)
    assert not table.lows.flags.writeable
    assert table.lows.ctypes.data % 8 == 0


def test_other_bytes_are_refused(predicates: PredicateSet) -> None:
    data = pack(predicates)
    for wrong in (b"", b"something else that is long enough", data[:24], data[:40], data[:-100]):
        with pytest.raises(PackError):
            unpack(wrong)


def test_packs_of_another_format_say_what_to_do(predicates: PredicateSet) -> None:
    older = pack(predicates).replace(b"accord predicates 2", b"accord predicates 1", 1)
    with pytest.raises(PackError, match="compiled by another version of accord: publish them"):
        unpack(older)
