"""Prints the events that match: as a table, as JSON lines, or their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import typer
from rich.console import Console

from accord.cli.event_screen import show_events
from accord.cli.events import ReadEvent
from accord.cli.screen import print_line
from accord.core.model.channels import filter_selects
from accord.predicates import Predicate


@dataclass(frozen=True, slots=True)
class MatchSelection:
    """Selects the events on `channel` that match `predicate`, or that do not."""

    predicate: Predicate
    channel: str | None = None
    is_inverted: bool = False

    def is_on_channel(self, read: ReadEvent) -> bool:
        return self.channel is None or filter_selects(self.channel, read.event.channel)

    def selects(self, read: ReadEvent) -> bool:
        return (
            self.is_on_channel(read) and self.predicate.matches(read.event) is not self.is_inverted
        )


def print_table(console: Console, selection: MatchSelection, events: Iterator[ReadEvent]) -> int:
    """Print a table; like all print functions, returns the number of events."""
    considered = [read for read in events if selection.is_on_channel(read)]
    wanted = [read for read in considered if selection.selects(read)]
    if wanted:
        show_events(console, wanted)
        console.print()
    print_line(console, summary(len(wanted), len(considered), is_inverted=selection.is_inverted))
    return len(wanted)


def print_json(selection: MatchSelection, events: Iterator[ReadEvent]) -> int:
    """Print each event as the line it was read from, as soon as it is read."""
    number = 0
    for read in filter(selection.selects, events):
        typer.echo(read.text)
        number += 1
    return number


def print_count(selection: MatchSelection, events: Iterator[ReadEvent]) -> int:
    number = sum(1 for _ in filter(selection.selects, events))
    typer.echo(number)
    return number


def summary(number: int, total: int, *, is_inverted: bool = False) -> str:
    if is_inverted:
        verb = "does not match" if number == 1 else "do not match"
    else:
        verb = "matches" if number == 1 else "match"
    return f"{number or 'none'} of {total} events {verb}"
