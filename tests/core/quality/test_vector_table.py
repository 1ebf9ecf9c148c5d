from __future__ import annotations

from random import Random

import numpy as np
import pytest

from accord.core.quality.skyline import VectorTable


@pytest.mark.parametrize("seed", range(5))
def test_comparing_with_all_rows_at_once(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    rows: VectorTable[str] = VectorTable(3)
    known: dict[int, tuple[float, ...]] = {}
    for number in range(60):
        if known and random.random() < 0.3:
            gone = random.choice(list(known))
            del known[gone]
            rows.remove(gone)
        vector = tuple(float(random.randrange(6)) for _ in range(3))
        known[rows.add(str(number), vector)] = vector
        rows.check_invariants()
    assert len(rows) == len(known)
    asked = [tuple(float(random.randrange(7)) for _ in range(3)) for _ in range(20)]
    for turn in range(0, 200, 7):
        found = rows.rows_at_least(np.array(asked).T, turn).tolist()
        for vector, row in zip(asked, found, strict=True):
            above = _above(known, vector)
            assert (row in above) if above else (row == -1)
            mask = rows.at_least(vector)
            assert rows.first(mask, 100) == above
            assert rows.first(mask, 2) == above[:2]


def _above(known: dict[int, tuple[float, ...]], vector: tuple[float, ...]) -> list[int]:
    return sorted(
        row for row, each in known.items() if all(a >= b for a, b in zip(each, vector, strict=True))
    )
