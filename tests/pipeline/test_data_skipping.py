from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.strategies import TYPED, attribute_maps, trees

from accord.core.model.channels import filter_selects
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.pipeline.attributes import to_row
from accord.pipeline.data_skipping import complete_columns, select
from accord.pipeline.delta_log import Archive
from accord.pipeline.parquet_files import renamed, upper_bound, write_file
from accord.pipeline.tables import TableFile, arrow_events, columns_for

KINDS: Final = {int: "integer", float: "float", str: "string", bool: "boolean"}
KIND_NAMES: Final = (*KINDS.values(), "timestamp")
DECLARED: Final = {name: KINDS.get(kind, "timestamp") for name, kind in TYPED.items()}


def file(**fields: Any) -> TableFile:
    known: dict[str, Any] = {
        "path": "p", "day": "2026-11-16", "rows": 1, "bytes": 1, "node": "here",
        "first_offset": 100, "last_offset": 199, "first_ms": 1_000, "last_ms": 2_000,
        "first_number": 10, "last_number": 20, "channels": ("uav/1", "uav/2"),
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
        ({"channel": "uav/#"}, True),
        ({"channel": "sea/#"}, False),
        ({"channel": "uav/0"}, False),
        ({"channel": "uav/2"}, True),
        ({"channel": "+/2"}, True),
    ],
)
def test_a_file_is_opened_only_where_something_may_be_in_it(
    asked: dict[str, Any], is_in: bool
) -> None:
    assert is_selected(file(), **asked) is is_in


def test_files_without_known_bounds_are_opened() -> None:
    unknown = TableFile(path="p", day="2026-11-16", rows=1, bytes=1)
    assert is_selected(
        unknown, channel="sea/3", node="here", number=5, since_ms=10, predicate=parse("a = 1")
    )


ALTITUDE: Final = file(stats={"altitude": (100, 300)})
COLUMNS: Final = columns_for({"altitude": "integer", "a": "string"}, ())


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


def test_a_column_with_other_values_in_the_map_rules_out_nothing() -> None:
    assert is_selected(file(stats={}), predicate=parse("altitude > 300"), columns=COLUMNS)
    assert complete_columns([ALTITUDE], COLUMNS) == {"altitude"}
    assert complete_columns([ALTITUDE, file(stats={})], COLUMNS) == set()


def test_a_column_without_values_satisfies_nothing_but_its_absence() -> None:
    empty = file(stats={"a": (None, None)})
    assert not is_selected(empty, predicate=parse("a LIKE '%'"), columns=COLUMNS)
    assert not is_selected(empty, predicate=parse("a <> 'x'"), columns=COLUMNS)
    assert not is_selected(empty, predicate=parse("a IS NOT NULL"), columns=COLUMNS)
    assert is_selected(empty, predicate=parse("a IS NULL"), columns=COLUMNS)


def test_texts_are_compared_by_their_beginning() -> None:
    texts = file(stats={"a": ("mast", "mist")})
    assert is_selected(texts, predicate=parse("a LIKE 'mi%'"), columns=COLUMNS)
    assert is_selected(texts, predicate=parse("a LIKE 'm%'"), columns=COLUMNS)
    assert is_selected(texts, predicate=parse("a LIKE '%s'"), columns=COLUMNS)
    assert not is_selected(texts, predicate=parse("a LIKE 'mo%'"), columns=COLUMNS)
    assert not is_selected(texts, predicate=parse("a LIKE 'b_'"), columns=COLUMNS)


def file_of(
    folder: Path, maps: list[dict[str, Value]], declared: dict[str, str], channels: list[str]
) -> TableFile:
    """As a table's log has it when these events have been archived."""
    log = Archive(folder, ["here"]).events
    columns = log.columns(declared)
    held = [to_row(each, None, declared) for each in maps]
    rows = pa.Table.from_pylist(
        [
            {"node": "here", "offset": n, "number": n + 1, "received": n, "payload_bytes": 0}
            | row
            | {"channel": channel, "attributes": list(row["attributes"].items()), "paths": None}
            for n, (row, channel) in enumerate(zip(held, channels, strict=True))
        ],
        arrow_events(declared),
    )
    added = write_file(
        log._storage, renamed(rows, columns), table="events", day="1970-01-01", node="here",
        columns=columns,
    )  # fmt: skip
    before = log.snapshot().files
    log.replace((), [added])
    (new,) = [each for each in log.snapshot().files if each not in before]
    return new


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skipping")


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(attribute_maps(), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from([*DECLARED, "x"]), st.sampled_from(KIND_NAMES), max_size=5),
    trees(),
)
@example([{"note": "b" * 100}], {"note": "string"}, parse(f"note > '{'b' * 70}'").tree)
@example([{"note": "b" * 100}], {"note": "string"}, parse(f"note LIKE '{'b' * 70}%'").tree)
def test_a_file_with_a_match_is_never_passed_over(
    folder: Path, maps: list[dict[str, Value]], declared: dict[str, str], tree: Any
) -> None:
    predicate = Predicate(tree)
    log = Archive(folder / uuid4().hex, ["here"])
    entry = file_of(Path(log.place), maps, declared, ["a"] * len(maps))
    columns = log.events.snapshot().columns
    if any(predicate.evaluate(each) is True for each in maps):
        assert is_selected(entry, predicate=predicate, columns=columns)


@given(
    st.lists(st.sampled_from(["uav/1", "uav", "sea/2/x", "$s/1", "a b"]), min_size=1, max_size=3),
    st.sampled_from(["#", "+", "+/1", "uav/#", "sea/+/x", "$s/#", "a b", "x"]),
)
def test_a_file_with_a_channel_is_never_passed_over(channels: list[str], pattern: str) -> None:
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
    moment = datetime(2026, 11, 16, 8, tzinfo=UTC)
    entry = file_of(tmp_path, [{"seen": moment}], {"seen": "timestamp"}, ["a"])
    columns = columns_for({"seen": "timestamp"}, ())

    def selected(where: str) -> bool:
        return is_selected(entry, predicate=parse(where), columns=columns)

    assert selected("seen = TIMESTAMP '2026-11-16 10:00:00+02:00'")
    assert not selected("seen > TIMESTAMP '2026-11-16 08:00:00'")
