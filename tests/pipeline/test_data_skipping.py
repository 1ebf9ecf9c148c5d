from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from accord.pipeline.files import stats_of, upper_bound
from accord.pipeline.manifest import Snapshot
from accord.pipeline.pruning import select
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.strategies import TYPED, attribute_maps, trees

from accord.core.model.channels import filter_selects
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.pipeline.attributes import TYPES, to_row
from accord.pipeline.tables import ARROW, OTHER, FileEntry, group_of

KINDS: Final = {int: "integer", float: "float", str: "string", bool: "boolean"}
DECLARED: Final = {name: KINDS.get(kind, "timestamp") for name, kind in TYPED.items()}


def file(**fields: Any) -> FileEntry:
    known: dict[str, Any] = {
        "table": "events", "path": "p", "day": "2026-11-16", "group": "uav", "rows": 1, "bytes": 1,
        "node": "here", "first_offset": 100, "last_offset": 199, "first_ms": 1_000,
        "last_ms": 2_000, "first_number": 10, "last_number": 20, "channels": ("uav/1", "uav/2"),
    }  # fmt: skip
    return FileEntry(**known | fields)


def is_selected(file: FileEntry, **asked: Any) -> bool:
    return select(Snapshot(files=(file,)), **asked) == [file]


@pytest.mark.parametrize(
    ("asked", "is_in"),
    [
        ({}, True),
        ({"table": "ledger"}, False),
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


def test_channels_that_are_not_listed_are_told_by_their_group() -> None:
    many = file(channels=None)
    assert is_selected(many, channel="uav/3")
    assert is_selected(many, channel="#")
    assert not is_selected(many, channel="sea/3")
    assert is_selected(file(channels=None, group=OTHER), channel="sea/3")
    assert is_selected(file(channels=None, group=group_of("a b")), channel="a b/#")
    assert is_selected(file(channels=None, table="ledger", group=""), table="ledger", channel="x")


def test_entries_of_several_channels_are_part_of_whatever_is_asked_for() -> None:
    assert is_selected(file(table="ledger", channels=("",)), table="ledger", channel="sea/3")


ALTITUDE: Final = file(declared={"altitude": "integer"}, stats={"altitude": (100, 300)})


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
    assert is_selected(ALTITUDE, predicate=parse(where)) is is_in


def test_a_column_without_values_satisfies_nothing_but_its_absence() -> None:
    empty = file(declared={"a": "string"}, stats={"a": (None, None)})
    assert not is_selected(empty, predicate=parse("a LIKE '%'"))
    assert not is_selected(empty, predicate=parse("a <> 'x'"))
    assert not is_selected(empty, predicate=parse("a IS NOT NULL"))
    assert is_selected(empty, predicate=parse("a IS NULL"))


def test_texts_are_compared_by_their_beginning() -> None:
    texts = file(declared={"a": "string"}, stats={"a": ("mast", "mist")})
    assert is_selected(texts, predicate=parse("a LIKE 'mi%'"))
    assert is_selected(texts, predicate=parse("a LIKE 'm%'"))
    assert is_selected(texts, predicate=parse("a LIKE '%s'"))
    assert not is_selected(texts, predicate=parse("a LIKE 'mo%'"))
    assert not is_selected(texts, predicate=parse("a LIKE 'b_'"))


def file_of(maps: list[dict[str, Value]], declared: dict[str, str]) -> FileEntry:
    """With the statistics that a file with these values would have."""
    columns = {name: TYPES[kind] for name, kind in declared.items()}
    held = [to_row(each, None, columns) for each in maps]
    arrays = {
        name: pa.array([row[name] for row in held], ARROW[kind]) for name, kind in declared.items()
    }
    return file(declared=declared, stats=stats_of(pa.table(arrays), declared))


def seen(values: dict[str, Value], declared: dict[str, str]) -> dict[str, Value]:
    """What conditions see of an event in the archive."""
    row = to_row(values, None, {name: TYPES[kind] for name, kind in declared.items()})
    found = {name: value for name, value in values.items() if name not in declared}
    return found | {name: row[name] for name in declared if row[name] is not None}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(attribute_maps(), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from([*DECLARED, "x"]), st.sampled_from(list(ARROW)), max_size=5),
    trees(),
)
@example([{"note": "b" * 100}], {"note": "string"}, parse(f"note > '{'b' * 70}'").tree)
@example([{"note": "b" * 100}], {"note": "string"}, parse(f"note LIKE '{'b' * 70}%'").tree)
def test_a_file_with_a_match_is_never_passed_over(
    maps: list[dict[str, Value]], declared: dict[str, str], tree: Any
) -> None:
    predicate = Predicate(tree)
    entry = file_of(maps, declared)
    if any(predicate.evaluate(seen(each, declared)) is True for each in maps):
        assert is_selected(entry, predicate=predicate)


@given(
    st.lists(st.sampled_from(["uav/1", "uav", "sea/2/x", "$s/1", "a b"]), min_size=1, max_size=3),
    st.sampled_from(["#", "+", "+/1", "uav/#", "sea/+/x", "$s/#", "a b", "x"]),
    st.booleans(),
)
def test_a_file_with_a_channel_is_never_passed_over(
    channels: list[str], pattern: str, is_listed: bool
) -> None:
    group = group_of(channels[0])
    mine = [channel for channel in channels if group_of(channel) == group]
    entry = file(group=group, channels=tuple(mine) if is_listed else None)
    if any(filter_selects(pattern, channel) for channel in mine):
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
    entry = file_of([{"seen": moment}], {"seen": "timestamp"})
    assert is_selected(entry, predicate=parse("seen = TIMESTAMP '2026-11-16 10:00:00+02:00'"))
    assert not is_selected(entry, predicate=parse("seen > TIMESTAMP '2026-11-16 08:00:00'"))
