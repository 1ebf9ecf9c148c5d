"""What is to be reached, and whether it was: the table at the end of a result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.report import Table, number, significant


@dataclass(frozen=True)
class Aim:
    """`is_met` is None where the trial can't tell."""

    where: str
    wanted: str
    measured: str
    is_met: bool | None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "can't tell"}[self.is_met]


def at_most(
    where: str, wanted: tuple[float, str], figure: float | None, reference: float | None, unit: str
) -> Aim:
    """That a figure is no more than so many times the reference; `wanted` also names that."""
    most, named = wanted
    wanted_text = f"≤ {most:g} × {named}"
    if figure is None or not reference:
        return Aim(where, wanted_text, "not measured", None)
    times = figure / reference
    shown = f"{significant(figure)} of {significant(reference)} {unit}: {number(times, 3)} ×"
    return Aim(where, wanted_text, shown, times <= most)


def aims_table(aims: Iterable[Aim], title: str = "Aims") -> Table:
    table = Table(title, ["where", "wanted", "measured", "verdict"])
    for aim in aims:
        table.add(aim.where, aim.wanted, aim.measured, aim.verdict)
    return table
