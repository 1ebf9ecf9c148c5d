"""Spark and the live evaluator agree on random predicates, nulls included."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
)
from tests.strategies import TYPED, attribute_maps, documents, trees

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import Expr
from accord.pipeline.attributes import ATTRIBUTES, schema, to_row
from accord.pipeline.query.spark_predicate import to_column

_SPARK_TYPES: Final[dict[str, DataType]] = {
    "int": LongType(),
    "float": DoubleType(),
    "str": StringType(),
    "bool": BooleanType(),
    "datetime": TimestampType(),
}
_DECLARED: Final = {name: _SPARK_TYPES[kind.__name__] for name, kind in TYPED.items()}

Rows = list[tuple[dict[str, Value], Document | None]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Many random events, the same in every run: Spark needs them before the first predicate."""
    found: Rows = []

    @settings(max_examples=250, derandomize=True, database=None, phases=[Phase.generate])
    @given(attribute_maps(), st.none() | documents())
    def collect(values: dict[str, Value], document: Document | None) -> None:
        found.append((values, document))

    collect()
    return found


@pytest.fixture(scope="module")
def archive(spark: SparkSession, rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The events in both forms: all attributes in the map, and again the typed ones as columns."""
    events = [
        {"id": n, **to_row(*row, _DECLARED), ATTRIBUTES: to_row(*row, {})[ATTRIBUTES]}
        for n, row in enumerate(rows)
    ]
    path = str(tmp_path_factory.mktemp("archive"))
    frame = spark.createDataFrame(events, schema(_DECLARED).add("id", "long"))
    frame.write.parquet(path, mode="overwrite")
    return spark.read.parquet(path)


# Not shrunk: a failure names its predicate and event, and each attempt would take a second.
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(conditions=st.lists(trees(), min_size=15, max_size=15))
def test_spark_and_live_agree(rows: Rows, archive: DataFrame, conditions: list[Expr]) -> None:
    predicates = [Predicate(condition) for condition in conditions]
    columns = {
        (n, form, is_canonical): to_column(condition, declared)
        for n, predicate in enumerate(predicates)
        for form, declared in (("map", {}), ("columns", _DECLARED))
        for is_canonical, condition in ((True, predicate), (False, conditions[n]))
    }
    for number, *truths in archive.select("id", *columns.values()).collect():
        for (n, form, is_canonical), found in zip(columns, truths, strict=True):
            expected = predicates[n].evaluate(*rows[number])
            case = (str(predicates[n] if is_canonical else conditions[n]), form, rows[number])
            if is_canonical:
                assert found is expected, case
            else:
                # Canonical form takes unknown for false, where that makes no difference.
                assert (found is True) == (expected is True), case
