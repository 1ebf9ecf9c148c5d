"""Events as Arrow batches, and what the live index says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from tests.strategies import TYPED

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.tree import And
from accord.pipeline.bulk.matcher import Matcher
from accord.pipeline.bulk.predicate_compiler import PredicateSet, Registered
from accord.pipeline.decode.attributes import to_row
from accord.pipeline.decode.dictionary_columns import FIELD_OF
from accord.pipeline.tables import ARROW, ATTRIBUTES_TYPE, PATHS_TYPE
from accord.predicates import Index, Predicate, parse, parse_xpath

DECLARED: Final = {name: FIELD_OF[kind] for name, kind in TYPED.items()}

Sample = tuple[str, Mapping[str, Value], Document | None]  # channel, values, metadata


def batch_of(samples: Sequence[Sample], declared: Mapping[str, str]) -> pa.RecordBatch:
    """The events as the archive has them."""
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("channel", pa.string()),
            *((name, ARROW[kind]) for name, kind in declared.items()),
            ("attributes", ATTRIBUTES_TYPE),
            ("metadata", pa.binary()),
            ("paths", PATHS_TYPE),
        ]
    )
    rows = []
    for number, (channel, values, document) in enumerate(samples):
        row: dict[str, Any] = to_row(values, document, declared)
        row["attributes"] = [*row["attributes"].items()]
        row["paths"] = row["paths"] and [*row["paths"].items()]
        rows.append({**row, "number": number, "channel": channel})
    return pa.RecordBatch.from_pylist(rows, schema)


def found_in_bulk(
    predicates: PredicateSet, samples: Sequence[Sample], declared: Mapping[str, str]
) -> list[set[str]]:
    found: list[set[str]] = [set() for _ in samples]
    keys = predicates.keys.to_pylist()
    for _, (rows, positions) in Matcher(predicates).find(batch_of(samples, declared), declared):
        for row, position in zip(rows.tolist(), positions.tolist(), strict=True):
            assert keys[position] not in found[row], "found twice"
            found[row].add(keys[position])
    return found


def found_live(registered: Iterable[Registered], samples: Sequence[Sample]) -> list[set[str]]:
    """What one index says, event by event."""
    index = Index()
    for each in registered:
        predicate = parse(each.where)
        if each.xpath:
            predicate = Predicate(And((predicate.tree, parse_xpath(each.xpath).tree)))
        index.add(each.key, predicate, channel=each.channel, importance=each.importance)
    return [
        {str(key) for key in index.match_values(channel, values, document).keys}
        for channel, values, document in samples
    ]
