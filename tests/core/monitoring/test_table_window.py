from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.table_window import Window, select_window

Row = tuple[str, int | None]

NAMES = st.text("abAB/ ", max_size=4)
ROWS = st.lists(st.tuples(NAMES, st.none() | st.integers(0, 3)), max_size=30)


def window(rows: list[Row], **kept: object) -> Window[Row]:
    options: dict[str, object] = {"limit": 100, **kept}
    return select_window(rows, text=lambda row: row[0], key=lambda row: row[1], **options)  # type: ignore[arg-type]


def test_a_window_of_the_rows_that_match_in_order() -> None:
    rows: list[Row] = [("uav/imagery", 2), ("UAV/tasking", 7), ("patrol/report", 9), ("uav/x", 7)]
    found = window(rows, search="uav", is_descending=True, limit=2)
    assert found.rows == [("UAV/tasking", 7), ("uav/x", 7)]  # equal ones in the order given
    assert (found.total, found.matching) == (4, 3)
    assert window(rows, search="uav", is_descending=True, limit=2, offset=2).rows == [rows[0]]
    assert window(rows, search="IMAGE uav").rows == [rows[0]]
    assert window(rows, offset=4).rows == []


def test_rows_without_a_value_come_last_in_both_directions() -> None:
    rows: list[Row] = [("a", None), ("b", 2), ("c", 1)]
    assert [name for name, _ in window(rows).rows] == ["c", "b", "a"]
    assert [name for name, _ in window(rows, is_descending=True).rows] == ["b", "c", "a"]


@given(ROWS, NAMES, st.booleans(), st.integers(1, 8))
def test_windows_side_by_side_are_the_whole_table(
    rows: list[Row], search: str, is_descending: bool, limit: int
) -> None:
    numbered = list(enumerate(rows))
    matching = [
        each
        for each in numbered
        if all(word in each[1][0].casefold() for word in search.casefold().split())
    ]
    sign = -1 if is_descending else 1
    wanted = sorted(
        matching,
        key=lambda each: (each[1][1] is None, sign * (each[1][1] or 0), each[0]),
    )
    found: list[tuple[int, Row]] = []
    for offset in range(0, len(rows) + limit, limit):
        part = select_window(
            numbered,
            text=lambda each: each[1][0],
            key=lambda each: each[1][1],
            search=search,
            is_descending=is_descending,
            limit=limit,
            offset=offset,
        )
        assert (part.total, part.matching) == (len(rows), len(matching))
        assert len(part.rows) <= limit
        found += part.rows
    assert found == wanted
