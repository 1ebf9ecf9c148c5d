"""What configurations may declare is what tables can hold."""

from __future__ import annotations

from accord.core.queries.messages import COLUMNS, TYPES
from accord.pipeline import attributes, tables


def test_both_know_the_same_columns_and_types() -> None:
    assert COLUMNS == tables.COLUMNS
    assert set(TYPES) == set(attributes.TYPES)
