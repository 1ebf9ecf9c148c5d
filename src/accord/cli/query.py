"""`accord query`: find kept events, page by page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from accord.cli.arguments import check_filter, check_predicate, read_event_id, read_since
from accord.cli.connection import ConnectionTarget, open_session, run_client
from accord.cli.options import Where, XPathCondition, command
from accord.cli.parameters import argument, flag, option
from accord.cli.sub import print_event
from accord.client.messages import ReceivedEvent
from accord.client.query import QueryStats
from accord.client.session import Session
from accord.core.model.errors import AccordError, InputError
from accord.operations.query_overviews import ListAttributes
from accord.terminal.amounts import count_text, duration_text, size_text
from accord.terminal.event_lines import EventPrinter
from accord.terminal.screen import open_console, print_line, safe

LIMIT: Final = 100
SINCE: Final = "-24h"
_HINT_S: Final = 3.0


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


class EngineChoice(StrEnum):
    DATAFUSION = "datafusion"
    SPARK = "spark"


_BY_ENDING: Final = {
    ".parquet": Format.PARQUET,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".csv": Format.CSV,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
}
_ENDINGS: Final = ".parquet, .arrow, .csv, .jsonl"


@command
def query(
    channel: str = argument("CHANNEL", "Channels, such as demo/feeder/+ or '#'", default="#"),
    *,
    where: Where = None,
    xpath: XPathCondition = None,
    since: str | None = option(
        "TIME",
        "Only events received since: -24h, 2026-11-16, …",
        show_default=f"{SINCE}, or any time with --event",
    ),
    until: str | None = option("TIME", "Only events received before.", show_default="now"),
    limit: int | None = option(
        "N",
        "Maximum number of events.",
        "--limit",
        "-n",
        min=1,
        default=None,
        show_default=f"{LIMIT}; all with --output",
    ),
    is_newest_first: bool = flag(
        "Order of the events; the limit applies to it.", "--newest/--oldest", default=True
    ),
    event: str | None = option("ID", "Only the event with this ID."),
    form: Format | None = option(
        None, "Format of the output.", "--format", "-f", show_default="table", default=None
    ),
    is_json: bool = flag("The same as --format json.", "--json"),
    output: Path | None = option(
        "FILE", f"Write all events to FILE ({_ENDINGS}).", "--output", "-o"
    ),
    engine: EngineChoice | None = option(
        None, "What reads the archive.", show_default="as the query needs", default=None
    ),
    as_of: str | None = option(
        "VERSION|TIME", "The archive as it was, in the last hours: a version of its table, or -1h."
    ),
    is_explained: bool = flag("Say what was read, and by which engine.", "--explain"),
    target: ConnectionTarget,
) -> None:
    """Find kept events by channel, content and time, including the latest.

    Exit code 0, or 1 if there are none; 2 for a usage error.
    """
    form = _choose_format(Format.JSON if is_json and form is None else form, output)
    since = SINCE if since is None and event is None else since
    check_filter(channel, "CHANNEL")
    check_predicate(where, xpath)
    moment = None if as_of is None or as_of.isdigit() else as_of
    for name, text in (("--since", since), ("--until", until), ("--as-of", moment)):
        if text is not None:
            read_since(text, name)
    if event is not None:
        read_event_id(event, "--event")
    if output is not None:
        question = {"channel": channel, "where": where, "xpath": xpath, "event": event}
        order = "newest" if is_newest_first else "oldest"
        more = {"since": since, "until": until, "limit": limit, "order": order}
        more |= {"engine": None if engine is None else engine.value, "as_of": as_of}
        _export(output, form, target, **question, **more)
        return
    limit = limit or LIMIT
    console = open_console()
    bar: Console | None = open_console(stderr=True)
    if form is Format.JSON:
        put = print_event
        bar = None if console.is_terminal else bar
    else:
        put = EventPrinter(console, is_kept=True).show
        # On one terminal, only output through the bar's console stays above the bar.
        bar = console if console.is_terminal else bar
    querying = QueryRunner(
        channel,
        put,
        bar,
        where=where,
        xpath=xpath,
        since=since,
        until=until,
        limit=limit,
        newest_first=is_newest_first,
        event=event,
        engine=None if engine is None else engine.value,
        as_of=as_of,
    )
    try:
        run_client(querying.run(target))
    except KeyboardInterrupt:
        querying.interrupted()
        raise typer.Exit(1) from None
    querying.summarise(is_explained=is_explained)
    raise typer.Exit(0 if querying.found else 1)


def _choose_format(form: Format | None, output: Path | None) -> Format:
    if form is None and output is not None:
        form = _BY_ENDING.get(output.suffix.lower())
        if form is None:
            raise InputError("--output", f"expected --format, or a name that ends in {_ENDINGS}")
    if form not in (None, Format.JSON, Format.TABLE) and output is None:
        raise InputError("--format", f"expected --output FILE for {form}")
    if form is Format.TABLE and output is not None:
        raise InputError("--output", "expected --format json, csv, arrow or parquet for a file")
    return form or Format.TABLE


def _export(output: Path, form: Format, target: ConnectionTarget, **question: Any) -> None:
    # Imported late: completion must not wait for it.
    from accord.cli.query_export import EventExport  # noqa: PLC0415

    console = open_console(stderr=True)
    exporting = EventExport(output, form.value, **question)  # type: ignore[arg-type]

    def remark(text: str) -> None:
        print_line(console, Text(safe(text), "dim"))

    began_s = time.monotonic()
    try:
        with _bar(console, question["limit"]) as show_progress:
            run_client(exporting.run(target, remark, lambda n: show_progress(QueryStats(events=n))))
    except KeyboardInterrupt:
        remark(f"interrupted after {count_text(exporting.found, 'event')}")
        raise typer.Exit(1) from None
    finally:
        exporting.close()
    if not exporting.found:
        print_line(console, f"nothing found: {safe(question_text(**question))}")
        raise typer.Exit(1)
    if console.is_terminal:
        spent = duration_text(time.monotonic() - began_s)
        remark(f"{count_text(exporting.found, 'event')} in {spent}")


class QueryRunner:
    """Requests pages, and passes on the events; `options` are those of `Session.query`."""

    def __init__(
        self,
        channel: str,
        put: Callable[[ReceivedEvent], None],
        bar: Console | None,
        *,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        self._channel = channel
        self._put = put
        self._bar = bar
        self._limit = limit
        self._clock = clock
        self._options = options
        self._console = open_console(stderr=True)
        self._started_s = clock()
        self._stats = QueryStats()
        self._hint = ""
        self.found = 0

    async def run(self, target: ConnectionTarget) -> None:
        async with (
            open_session(target, self._remark) as session,
            session.query(self._channel, limit=self._limit, **self._options) as query,
        ):
            with _bar(self._bar, self._limit) as show_progress:
                show_progress(query.stats)
                async for event in query:
                    self._put(event)
                    self.found += 1
                    show_progress(query.stats)
            self._stats = query.stats
            if not self.found and self._options.get("where"):
                self._hint = await self._unknown_attribute(session)

    async def _unknown_attribute(self, session: Session) -> str:
        """What the predicate asks of events that none of them has; a remark, so it may fail."""
        ask = ListAttributes(
            channel=self._channel,
            where=self._options["where"],
            since=self._options.get("since"),
            until=self._options.get("until"),
        )
        try:
            return (await session.call(ask, timeout_s=_HINT_S)).hint
        except (AccordError, TimeoutError):
            return ""

    def summarise(self, *, is_explained: bool = False) -> None:
        """Summary for an operator; an empty result is always reported."""
        if is_explained:
            self._remark(_explanation(self._stats))
        if not self.found:
            print_line(
                self._console,
                f"nothing found: {safe(question_text(self._channel, **self._options))}",
            )
            advice = self._hint or (
                "is the channel kept ([[keep]] in accord.toml)? or look further back with --since"
            )
            print_line(self._console, Text(advice, "dim"))
            return
        if not self._console.is_terminal:
            return
        spent = duration_text(self._clock() - self._started_s)
        self._remark(f"{count_text(self.found, 'event')} in {spent}; {_effort(self._stats)}")
        if self.found == self._limit and self._options["event"] is None:
            self._remark("there may be more: --limit")

    def interrupted(self) -> None:
        self._remark(f"interrupted after {count_text(self.found, 'event')}")

    def _remark(self, text: str) -> None:
        print_line(self._console, Text(safe(text), "dim"))


def question_text(
    channel: str,
    *,
    where: str | None = None,
    xpath: str | None = None,
    event: str | None = None,
    since: str | None = None,
    until: str | None = None,
    **_: object,
) -> str:
    parts = (
        ("where", where if xpath is None else xpath),
        ("with id", event),
        ("since", since),
        ("until", until),
    )
    return " ".join([channel, *(f"{word} {text}" for word, text in parts if text is not None)])


def _explanation(stats: QueryStats) -> str:
    """What was read, in full."""
    size = size_text(stats.bytes)
    archive = f"{count_text(stats.files, 'file')} opened ({size}), {stats.files_skipped:,} skipped"
    tail = f"{count_text(stats.tail, 'record')} not archived yet"
    return f"engine {stats.engine}: {archive}; {tail}; {stats.took_ms:,} ms"


def _effort(stats: QueryStats) -> str:
    parts = [f"{count_text(stats.files, 'file')} read, {stats.files_skipped:,} skipped"]
    if stats.tail:
        parts.append(f"{stats.tail:,} not archived yet")
    if stats.missing:
        parts.append(f"{stats.missing:,} dropped on the way")
    return ", ".join(parts)


@contextmanager
def _bar(console: Console | None, limit: int | None) -> Iterator[Callable[[QueryStats], None]]:
    """Shows a query's progress on a terminal."""
    if console is None or not console.is_terminal:
        yield lambda _: None
        return
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TextColumn("[dim]{task.fields[effort]}", markup=True),
    )
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=limit, effort="", count="")
        most = "" if limit is None else f" of at most {limit:,}"

        def show(stats: QueryStats) -> None:
            effort = _effort(stats) if stats.pages else ""
            count = f"{stats.events:,}{most} events"
            progress.update(task, completed=stats.events, effort=effort, count=count)

        yield show
