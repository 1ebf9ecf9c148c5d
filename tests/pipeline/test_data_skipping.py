from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.strategies import TYPED, attribute_maps, trees

from accord.core.model.channels import filter_selects
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.pipeline.data_skipping import complete_columns, select
from accord.pipeline.decode.attributes import to_row
from accord.pipeline.delta_log import DeltaLog, JournalPart, WrittenFile
from accord.pipeline.parquet_files import renamed, stats_json, upper_bound
from accord.pipeline.storage import Storage
from accord.pipeline.tables import (
    ARROW,
    ATTRIBUTES,
    ATTRIBUTES_TYPE,
    EVENTS,
    AttributeColumn,
    Columns,
    TableFile,
)

KINDS: Final = {int: "integer", float: "float", str: "string", bool: "boolean"}
DECLARED: Final = {name: KINDS.get(kind, "timestamp") for name, kind in TYPED.items()}


def file(**fields: Any) -> TableFile:
    known: dict[str, Any] = {
        "path": "p", "day": "2026-11-16", "rows": 1, "bytes": 1,
        "node": "here", "first_offset": 100, "last_offset": 199, "first_ms": 1_000,
        "last_ms": 2_000, "first_number": 10, "last_number": 20, "channels": ("uav/1", "uav/2"),
    }  # fmt: skip
    return TableFile(**known | fields)


def is_selected(file: TableFile, **asked: Any) -> bool:
    return select([file], **asked) == [file]


@pytest.mark.parametrize(
    ("asked", "is_in"),
    [
        ({}, True),
        ({"node": "here"}, True),
        ({"node": "there"}, False),
        ({"since_ms": 2_000}, True),
        ({"since_ms": 2_001}, False),
        ({"until_ms": 1_001}, True),
        ({"until_ms": 1_000}, False),
        ({"from_offset": 199}, True),
        ({"from_offset": 200}, False),
        ({"before_offset": 101}, True),
        ({"before_offset": 100}, False),
        ({"number": 10}, True),
        ({"number": 20}, True),
        ({"number": 21}, False),
        ({"number": 9}, False),
        ({"channel": "uav/+"}, True),
        ({"channel": "uav/3"}, False),
        ({"channel": "+/2"}, True),
    ],
)
def test_a_file_is_opened_only_where_something_may_be_in_it(
    asked: dict[str, Any], is_in: bool
) -> None:
    assert is_selected(file(), **asked) is is_in


def test_where_nothing_is_known_of_a_file_it_is_read() -> None:
    unknown = TableFile(path="p", day="2026-11-16", rows=1, bytes=1)
    asked = {"channel": "uav/3", "node": "there", "since_ms": 5, "from_offset": 7, "number": 9}
    assert is_selected(unknown, **asked, predicate=parse("altitude > 5"), columns=COLUMNS)


COLUMNS: Final = (AttributeColumn("altitude", "altitude", "integer"),)
ALTITUDE: Final = file(stats={"altitude": (100, 300)})


@pytest.mark.parametrize(
    ("where", "is_in"),
    [
        ("altitude > 300", False),
        ("altitude >= 300", True),
        ("altitude > 299.5", True),
        ("300 < altitude", False),
        ("altitude < 100", False),
        ("altitude = 99", False),
        ("altitude BETWEEN 301 AND 400", False),
        ("altitude BETWEEN 10 AND 100", True),
        ("altitude IN (1, 2)", False),
        ("altitude IN (1, 200)", True),
        ("altitude > 300 AND platform = 'UAV'", False),
        ("altitude > 300 OR platform = 'UAV'", True),
        ("altitude > 300 OR altitude < 100", False),
        ("NOT altitude > 300", True),
        ("NOT altitude < 400", False),
        ("altitude + 1 > 500", True),
        ("altitude = 'high'", False),
        ("altitude IS NULL", True),
        ("altitude IS NOT NULL", True),
        ("platform > 5", True),
    ],
)
def test_conditions_on_declared_attributes_rule_out_files(where: str, is_in: bool) -> None:
    assert is_selected(ALTITUDE, predicate=parse(where), columns=COLUMNS) is is_in


def test_a_file_whose_map_may_have_the_attribute_too_is_read() -> None:
    assert is_selected(file(), predicate=parse("altitude > 300"), columns=COLUMNS)
    assert complete_columns([ALTITUDE], COLUMNS) == {"altitude"}
    assert complete_columns([ALTITUDE, file()], COLUMNS) == frozenset()


def test_a_column_without_values_satisfies_nothing_but_its_absence() -> None:
    columns = (AttributeColumn("a", "a", "string"),)
    empty = file(stats={"a": (None, None)})
    for where, is_in in (
        ("a LIKE '%'", False),
        ("a <> 'x'", False),
        ("a IS NOT NULL", False),
        ("a IS NULL", True),
    ):
        assert is_selected(empty, predicate=parse(where), columns=columns) is is_in


def test_texts_are_compared_by_their_beginning() -> None:
    columns = (AttributeColumn("a", "a", "string"),)
    texts = file(stats={"a": ("mast", "mist")})
    for pattern, is_in in (
        ("mi%", True),
        ("m%", True),
        ("%s", True),
        ("mo%", False),
        ("b_", False),
    ):
        predicate = parse(f"a LIKE '{pattern}'")
        assert is_selected(texts, predicate=predicate, columns=columns) is is_in


def test_all_columns_of_an_attribute_are_looked_at() -> None:
    columns = (AttributeColumn("a", "a", "integer"), AttributeColumn("a", "a_string", "string"))
    both = file(stats={"a": (1, 5), "a_string": ("k", "m")})
    for where, is_in in (("a = 3", True), ("a = 'l'", True), ("a = 7", False), ("a = 'z'", False)):
        assert is_selected(both, predicate=parse(where), columns=columns) is is_in
    one = file(stats={"a": (1, 5)})
    assert is_selected(one, predicate=parse("a = 7"), columns=columns)


class Told:
    """A table, and its files as its log tells of them."""

    def __init__(self, folder: Path, declarations: list[dict[str, str]]) -> None:
        self._table = DeltaLog(Storage(folder), EVENTS, ["n"])
        self._own = [self._table.columns(each) for each in declarations]
        self.columns: Columns = self._table.snapshot().columns

    def file_of(self, maps: list[dict[str, Value]], which: int) -> TableFile:
        """Of events with these values, archived by one of the declarations."""
        own = self._own[which]
        kinds = {each.attribute: each.kind for each in own}
        rows = [to_row(each, None, kinds) for each in maps]
        arrays = {
            name: pa.array([row[name] for row in rows], ARROW[kind]) for name, kind in kinds.items()
        }
        arrays[ATTRIBUTES] = pa.array(
            [list(row[ATTRIBUTES].items()) for row in rows], ATTRIBUTES_TYPE
        )
        stats = stats_json(renamed(pa.table(arrays), own), self.columns)
        new = WrittenFile(
            table=EVENTS, path="day=2025-11-16/a.parquet", day="2025-11-16", rows=len(maps),
            bytes=1, stats=stats,
        )  # fmt: skip
        self._table.append([JournalPart(node="n", first=0, end=1, files=[new])])
        (file,) = self._table.snapshot().files
        return file


def declarations() -> st.SearchStrategy[list[dict[str, str]]]:
    kinds = st.sampled_from(list(ARROW))
    one = st.dictionaries(st.sampled_from([*DECLARED, "x"]), kinds, max_size=5)
    return st.lists(one, min_size=1, max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(attribute_maps(), min_size=1, max_size=4),
    declarations(),
    st.integers(0, 2),
    st.lists(trees(), min_size=1, max_size=5),
)
@example([{"note": "b" * 100}], [{"note": "string"}], 0, [parse(f"note > '{'b' * 70}'").tree])
@example([{"note": "b" * 100}], [{"note": "string"}], 0, [parse(f"note LIKE '{'b' * 70}%'").tree])
def test_a_file_with_a_match_is_never_skipped(
    tmp_path_factory: pytest.TempPathFactory,
    maps: list[dict[str, Value]],
    declared: list[dict[str, str]],
    which: int,
    conditions: list[Any],
) -> None:
    """Whatever is declared now, or was before: rows are decided by the events' own values."""
    told = Told(tmp_path_factory.mktemp("told"), declared)
    file = told.file_of(maps, which % len(declared))
    for tree in conditions:
        predicate = Predicate(tree)
        if any(predicate.evaluate(each) is True for each in maps):
            assert is_selected(file, predicate=predicate, columns=told.columns)


@given(
    st.lists(st.sampled_from(["uav/1", "uav", "sea/2/x", "$s/1", "a b"]), min_size=1, max_size=3),
    st.sampled_from(["#", "+", "+/1", "uav/#", "sea/+/x", "$s/#", "a b", "x"]),
)
def test_a_file_with_a_channel_is_never_skipped(channels: list[str], pattern: str) -> None:
    entry = file(channels=(min(channels), max(channels)))
    if any(filter_selects(pattern, channel) for channel in channels):
        assert is_selected(entry, channel=pattern)


@given(st.text(max_size=80) | st.sampled_from(["\U0010ffff" * 70, "a\ud7ff" * 40, "x" * 65]))
def test_a_bound_is_short_and_not_below(text: str) -> None:
    bound = upper_bound(text)
    if bound is None:
        assert set(text[:64]) == {"\U0010ffff"}
    else:
        assert text <= bound
        assert len(bound) <= 64
        bound.encode()


def test_times_are_compared_as_instants(tmp_path: Path) -> None:
    told = Told(tmp_path, [{"seen": "timestamp"}])
    entry = told.file_of([{"seen": datetime(2026, 11, 16, 8, 0, 0, 999_999, UTC)}], 0)
    for where, is_in in (
        ("seen = TIMESTAMP '2026-11-16 10:00:00.999999+02:00'", True),
        ("seen > TIMESTAMP '2026-11-16 08:00:00.999998'", True),
        ("seen > TIMESTAMP '2026-11-16 08:00:01'", False),
        ("seen < TIMESTAMP '2026-11-16 08:00:00'", False),
    ):
        assert is_selected(entry, predicate=parse(where), columns=told.columns) is is_in
