"""Schema evolution: reads files written with other declared attributes as if with the wanted ones.

A column that is not wanted, or not with this type, returns to the map of other attributes; a
missing one is taken from it. The result equals archiving with the wanted declaration, except that a
value taken from the map also stays there, and that a number returns as the type of the column it
was in: 5 as 5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.pipeline.attributes import ATTRIBUTES
from accord.pipeline.tables import ARROW, arrow_events


def conform(frame: DataFrame, had: Mapping[str, str], wanted: Mapping[str, str]) -> DataFrame:
    """Convert `frame` from the declared attributes `had` to those `wanted`."""
    columns = arrow_events(wanted).names
    gone = {name: kind for name, kind in had.items() if wanted.get(name) != kind}
    attributes = F.col(ATTRIBUTES)
    if gone:
        attributes = _restore(attributes, gone)
    chosen = [
        (
            attributes.alias(name)
            if name == ATTRIBUTES
            else _quoted(name)
            if name not in wanted or had.get(name) == wanted[name]
            else _extract(attributes[name], wanted[name]).alias(name)
        )
        for name in columns
    ]
    return frame.select(*chosen)


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _restore(attributes: Column, gone: Mapping[str, str]) -> Column:
    """Return values of unwanted columns to the other attributes."""
    entries = [
        F.struct(
            F.lit(name).alias("key"),
            F.struct(
                *(
                    (_quoted(name) if field == kind else F.lit(None).cast(_sql(field))).alias(field)
                    for field in ARROW
                )
            ).alias("value"),
        )
        for name, kind in gone.items()
    ]
    present = F.filter(F.array(*entries), lambda entry: ~_is_empty(entry["value"]))
    return F.map_concat(attributes, F.map_from_entries(present))


def _is_empty(value: Column) -> Column:
    return reduce(lambda left, right: left & right, (value[field].isNull() for field in ARROW))


def _extract(value: Column, kind: str) -> Column:
    """What a column of this type would have held of `value`: see `attributes.to_row`."""
    own = value[kind]
    if kind == "float":
        whole = value["integer"]
        exact = F.when(whole.cast("double").cast("decimal(38,0)") == whole, whole.cast("double"))
        return F.coalesce(own, exact)
    if kind == "integer":
        real = value["float"]
        is_whole = (real == F.rint(real)) & (real >= -(2.0**63)) & (real < 2.0**63)
        return F.coalesce(own, F.when(is_whole, real.try_cast("bigint")))
    return own


def _sql(field: str) -> str:
    return {"integer": "bigint", "float": "double"}.get(field, field)
