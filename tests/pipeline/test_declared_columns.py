"""What configurations may declare is what tables can hold."""

from __future__ import annotations

from accord.core.queries.messages import COLUMNS, TYPES
from accord.pipeline import tables


def test_both_know_the_same_columns_and_types() -> None:
    assert tables.COLUMNS | {"group"} == COLUMNS  # which files of earlier builds have
    assert set(TYPES) == set(tables.ARROW)
