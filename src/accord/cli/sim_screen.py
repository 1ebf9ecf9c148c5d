"""Output of `accord sim`."""

from __future__ import annotations

from collections.abc import Sequence

from accord.cli.table import NOTHING, Table, figures
from accord.sim import Outcome
from accord.sim.results import Row, rows


def draw_run(outcomes: Sequence[Outcome]) -> Table:
    """One line per run."""
    counts = ("nodes", "virtual s", "messages", "MB", "breaks", "crashes", "findings")
    table = Table("seed", *figures(*counts))
    for outcome in outcomes:
        (row,) = rows(outcome, "run")
        table.add_row(
            str(outcome.seed),
            str(outcome.nodes),
            f"{outcome.until_us / 1_000_000:,.0f}",
            _count(row, "messages"),
            f"{_number(row, 'bytes') / 1_000_000:,.1f}",
            str(outcome.breaks),
            str(outcome.crashes),
            str(outcome.found),
        )
    return table


def draw_channels(outcomes: Sequence[Outcome]) -> Table:
    """One line per channel and run."""
    counts = ("published", "wanted", "delivered", "late", "lost", "twice")
    table = Table("seed", "channel", *figures(*counts, "in time", "p50 ms", "p99 ms"))
    for outcome in outcomes:
        for row in rows(outcome, "channels"):
            share = row["in_time_share"]
            table.add_row(
                str(outcome.seed),
                str(row["channel"]),
                *(_count(row, name) for name in ("published", "wanted", "delivered", "late")),
                *(_count(row, name) for name in ("lost", "duplicates")),
                NOTHING if share is None else f"{float(share):.3%}",
                *(_ms(row, name) for name in ("p50_us", "p99_us")),
            )
    return table


def _number(row: Row, name: str) -> float:
    value = row[name]
    return 0.0 if value is None else float(value)


def _count(row: Row, name: str) -> str:
    return f"{_number(row, name):,.0f}"


def _ms(row: Row, name: str) -> str:
    return NOTHING if row[name] is None else f"{_number(row, name) / 1_000:,.1f}"
