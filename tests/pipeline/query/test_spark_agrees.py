"""Spark and the live evaluator agree on random predicates, nulls included."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType
from tests.strategies import TYPED, attribute_maps, documents, trees

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import Expr
from accord.pipeline.decode.attributes import to_row
from accord.pipeline.query.spark_predicate import to_column
from accord.pipeline.spark_tables import spark_events
from accord.pipeline.tables import ATTRIBUTES, METADATA, PATHS, Columns, columns_for

_KINDS: Final = {int: "integer", float: "float", str: "string", bool: "boolean"}
_DECLARED: Final = {name: _KINDS.get(kind, "timestamp") for name, kind in TYPED.items()}
# Attributes of mixed types: what fits is in a column, the rest in the map.
_SHARED: Final = _DECLARED | {"x": "integer", "y": "string"}
_FORMS: Final[dict[str, tuple[Columns, tuple[str, ...]]]] = {
    "map": ((), ()),
    "columns": (columns_for(_DECLARED, ()), tuple(_DECLARED)),
    "both": (columns_for(_SHARED, ()), ()),
}

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
    """The events in each form: with all attributes in the map, or some as columns."""
    path = str(tmp_path_factory.mktemp("archive"))
    for form, (columns, _) in _FORMS.items():
        declared = {each.attribute: each.kind for each in columns}
        events = [{"id": n, "form": form, **to_row(*row, declared)} for n, row in enumerate(rows)]
        whole = spark_events(declared)
        names = (*declared, ATTRIBUTES, METADATA, PATHS)
        schema = StructType([whole[name] for name in names]).add("id", "long").add("form", "string")
        spark.createDataFrame(events, schema).write.parquet(path, mode="append")
    whole = spark_events(_SHARED)
    every = StructType([whole[name] for name in (*_SHARED, ATTRIBUTES, METADATA, PATHS)])
    return spark.read.schema(every.add("id", "long").add("form", "string")).parquet(path)


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
    for form, (present, complete) in _FORMS.items():
        columns = {
            (n, is_canonical): to_column(condition, present, complete)
            for n, predicate in enumerate(predicates)
            for is_canonical, condition in ((True, predicate), (False, conditions[n]))
        }
        of_form = archive.where(F.col("form") == form)
        for number, *truths in of_form.select("id", *columns.values()).collect():
            for (n, is_canonical), found in zip(columns, truths, strict=True):
                expected = predicates[n].evaluate(*rows[number])
                case = (str(predicates[n] if is_canonical else conditions[n]), form, rows[number])
                if is_canonical:
                    assert found is expected, case
                else:
                    # Canonical form takes unknown for false, where that makes no difference.
                    assert (found is True) == (expected is True), case
