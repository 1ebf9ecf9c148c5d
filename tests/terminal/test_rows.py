"""Tables of any content, at any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from accord.terminal.rows import Column, Table, fields

WORDS = st.text("abcd漢", min_size=1, max_size=12)
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
ROWS = st.tuples(TEXTS, st.integers(0, 10**9), TEXTS, TEXTS, st.integers(0, 9))


def figures(*titles: str, weight: int = 1) -> list[Column]:
    return [Column(title, is_number=True, is_whole=True, weight=weight) for title in titles]


def drawn(table: Table, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def test_a_row_is_a_line_where_that_fits() -> None:
    table = Table("client", *figures("late"), "why", rows=[("ann", "1,200", "queue full")])
    assert drawn(table, 80) == [
        "client   late  why",
        "─────────────────────────",
        "ann     1,200  queue full",
    ]


def test_text_wraps_between_words_but_not_between_a_figure_and_its_unit() -> None:
    table = Table("client", Column("why", weight=2), rows=[("ann", "sending takes 300 ms more")])
    assert drawn(table, 25) == [
        "client  why",
        "─────────────────────────",
        "ann     sending takes",
        "        300 ms more",
    ]


def test_what_takes_fewer_lines_below_goes_there_by_weight() -> None:
    rows = [("ann", "1", "–", "4"), ("bob", "22", "3", "5")]
    table = Table("client", *figures("sent"), *figures("late", weight=0), *figures("lost"))
    for row in rows:
        table.add_row(*row)
    assert drawn(table, 20) == [
        "client  sent  lost",
        "    late",
        "──────────────────",
        "ann        1     4",
        "bob       22     5",
        "       3",
    ]
    assert table.height(20) == 6


def test_moments_and_ids_are_not_wrapped() -> None:
    table = Table(
        Column("time", is_whole=True), "why", rows=[("2026-03-14 06:12:30", "a b c d e f g h")]
    )
    assert "2026-03-14 06:12:30" in drawn(table, 24)[-2]


def test_only_what_is_marked_as_such_is_trusted() -> None:
    shown = "\n".join(drawn(Table("a", "b", rows=[("\x1b[31m", Text("x", "bold"))]), 40))
    assert r"\x1b[31m" in shown


def test_names_and_values_stay_beside_each_other() -> None:
    assert drawn(fields([("limits", "each client 2 Mbit/s"), ("x", "y")]), 24) == [
        "limits  each client",
        "        2 Mbit/s",
        "x       y",
    ]


@given(rows=st.lists(ROWS, max_size=4), width=st.integers(30, 200))
def test_nothing_is_lost_and_nothing_is_too_wide(
    rows: list[tuple[str, int, str, str, int]], width: int
) -> None:
    table = Table("name", *figures("count"), "reason", "more words here", *figures("n", weight=0))
    for name, count, reason, more, n in rows:
        table.add_row(name, f"{count:,}", reason, more, str(n))
    lines = drawn(table, width)
    assert all(Text(line).cell_len <= width for line in lines)
    assert table.height(width) == len(lines)
    words = [word for row in rows for cell in row for word in str(cell).split()]
    shown = sorted("\n".join(lines).replace("─", "").replace(",", "").split())
    assert shown == sorted([*words, "name", "count", "reason", "more", "words", "here", "n"])


def test_two_spaces_separate_what_belongs_together() -> None:
    pairs = "unit='Alpha 2'  lat=34.512  name='a long one'"
    table = Table("channel", Column("attributes", weight=2), rows=[("track", pairs)])
    assert drawn(table, 36)[2:] == [
        "track    unit='Alpha 2'  lat=34.512",
        "         name='a long one'",
    ]
