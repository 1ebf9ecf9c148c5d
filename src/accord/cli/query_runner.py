"""Runs a query page by page, and writes the results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from accord.cli.connection import ConnectionTarget, open_session
from accord.cli.errors import InputError
from accord.cli.event_output import EventPrinter, show_json, to_fields
from accord.cli.quantities import count_text, duration_text
from accord.cli.screen import open_console, print_line, safe
from accord.client.messages import ReceivedEvent
from accord.client.query import QueryStats
from accord.core.model.errors import file_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """What to find."""

    channel: str
    where: str | None = None
    xpath: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int = 100
    is_newest_first: bool = True
    event: str | None = None

    def __str__(self) -> str:
        parts = [self.channel]
        condition = self.where if self.xpath is None else self.xpath
        if condition is not None:
            parts.append(f"where {condition}")
        if self.event is not None:
            parts.append(f"with id {self.event}")
        parts += [f"since {self.since}"] if self.since is not None else []
        parts += [f"until {self.until}"] if self.until is not None else []
        return " ".join(parts)


class ResultSink(Protocol):
    """Receives events. `finish` is called after the last of them, `close` in any case."""

    def put(self, event: ReceivedEvent) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...

    def bar_console(self) -> Console | None:
        """The console for a progress bar, if any."""
        ...


class ScreenSink:
    def __init__(self, *, is_json: bool) -> None:
        self._console = open_console()
        self._is_json = is_json
        self._printer = EventPrinter(self._console, is_kept=True)

    def put(self, event: ReceivedEvent) -> None:
        if self._is_json:
            show_json(event)
        else:
            self._printer.show(event)

    def finish(self) -> None: ...

    def close(self) -> None: ...

    def bar_console(self) -> Console | None:
        if not self._console.is_terminal:
            return open_console(stderr=True)
        # On one terminal, only output through the bar's console stays above the bar.
        return None if self._is_json else self._console


class NewFile:
    """A file that appears only when complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        try:
            self.stream: IO[bytes] = self._part.open("wb")
        except OSError as error:
            raise InputError("--output", f"{path}: {file_problem(error)}") from None

    def finish(self) -> None:
        self.stream.close()
        os.replace(self._part, self._path)

    def close(self) -> None:
        self.stream.close()
        with suppress(OSError):
            self._part.unlink()


class JsonFile:
    def __init__(self, path: Path) -> None:
        self._file = NewFile(path)

    def put(self, event: ReceivedEvent) -> None:
        text = json.dumps(to_fields(event), ensure_ascii=False)
        self._file.stream.write(text.encode() + b"\n")

    def finish(self) -> None:
        self._file.finish()

    def close(self) -> None:
        self._file.close()

    def bar_console(self) -> Console | None:
        return open_console(stderr=True)


class QueryRunner:
    """Requests pages, and passes on the events."""

    def __init__(
        self, wanted: QueryOptions, sink: ResultSink, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = wanted
        self._sink = sink
        self._clock = clock
        self._console = open_console(stderr=True)
        self._started_s = clock()
        self._stats = QueryStats()
        self.found = 0

    async def run(self, target: ConnectionTarget) -> None:
        wanted = self._options
        async with (
            open_session(target, self._remark) as session,
            session.query(
                wanted.channel,
                where=wanted.where,
                xpath=wanted.xpath,
                since=wanted.since,
                until=wanted.until,
                limit=wanted.limit,
                newest_first=wanted.is_newest_first,
                event=wanted.event,
            ) as query,
        ):
            with _bar(self._sink.bar_console(), wanted.limit) as show_progress:
                show_progress(query.stats)
                async for event in query:
                    self._sink.put(event)
                    self.found += 1
                    show_progress(query.stats)
            self._stats = query.stats

    def summarise(self) -> None:
        """Summary for an operator; an empty result is always reported."""
        if not self.found:
            print_line(self._console, f"nothing found: {safe(str(self._options))}")
            advice = (
                "is the channel kept ([[keep]] in accord.toml)? or look further back with --since"
            )
            print_line(self._console, Text(advice, "dim"))
            return
        if not self._console.is_terminal:
            return
        spent = duration_text(self._clock() - self._started_s)
        self._remark(f"{count_text(self.found, 'event')} in {spent}; {_effort(self._stats)}")
        if self.found == self._options.limit and self._options.event is None:
            self._remark("there may be more: --limit")

    def interrupted(self) -> None:
        self._remark(f"interrupted after {count_text(self.found, 'event')}")

    def _remark(self, text: str) -> None:
        print_line(self._console, Text(safe(text), "dim"))


def _effort(stats: QueryStats) -> str:
    parts = [f"{count_text(stats.files, 'file')} read, {stats.files_skipped:,} skipped"]
    if stats.tail:
        parts.append(f"{stats.tail:,} not archived yet")
    if stats.missing:
        parts.append(f"{stats.missing:,} dropped on the way")
    return ", ".join(parts)


@contextmanager
def _bar(console: Console | None, limit: int) -> Iterator[Callable[[QueryStats], None]]:
    """Shows a query's progress on a terminal."""
    if console is None or not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} of at most {task.total:,.0f} events"),
        TextColumn("[dim]{task.fields[effort]}", markup=True),
    )
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=limit, effort="")

        def show(stats: QueryStats) -> None:
            effort = _effort(stats) if stats.pages else ""
            progress.update(task, completed=stats.events, effort=effort)

        yield show
