"""`accord broker`: match a table or stream with many predicates, on Spark."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import typer
from rich.text import Text

from accord.cli.arguments import read_choice, read_pairs
from accord.cli.parameters import argument, flag, option
from accord.core.model.errors import InputError
from accord.terminal.amounts import duration_text
from accord.terminal.screen import open_console, print_line, print_problem

_INTERRUPTED: Final = 130


def broker(
    events: str = argument(
        "EVENTS", "Table or stream: a file, folder or URI, a journal's folder or its node's URL."
    ),
    predicates: Path = argument(
        "PREDICATES",
        "JSON lines or CSV: name, channel, where, xpath, importance; or a predicate folder.",
    ),
    *,
    form: str | None = option(
        "FORMAT",
        "Format of EVENTS: parquet, json, csv, delta, journal.",
        "--format",
        "-f",
        show_default="by its name or contents",
    ),
    options: list[str] | None = option(
        "NAME=VALUE", "Option of Spark's reader; may be repeated.", "--option"
    ),
    columns: str | None = option(
        "NAMES", "Columns of EVENTS to show, separated by commas.", show_default="all"
    ),
    output: str | None = option(
        "FOLDER",
        "Write the matches there (.parquet, .json).",
        "--output",
        "-o",
        show_default="JSON lines to standard output",
    ),
    is_stream: bool = flag("Go on with new events until Ctrl-C.", "--stream"),
    is_once: bool = flag("A stream, up to what is there: what is new since last time.", "--once"),
    checkpoint: str | None = option(
        "FOLDER", "Where a stream keeps its progress.", show_default="in the output's folder"
    ),
    master: str = option(
        "URL", "Spark master: local[*], spark://HOST:PORT, sc://HOST:PORT, …", default="local[*]"
    ),
) -> None:
    """Match a table or stream of events with many predicates, on Spark.

    Each match is a row: the event's columns, and the name of the predicate.

    Exit code 0, also without a match; 1 if Spark fails, 2 for a usage error.
    """
    try:
        # Imported late: they need Spark, which may not be installed.
        from accord.pipeline import broker_job as jobs  # noqa: PLC0415
        from accord.pipeline.bulk.predicate_files import open_predicates  # noqa: PLC0415
    except ImportError as error:
        problem = f"needs Spark: pip install 'accord[pipeline]' ({error})"
        raise InputError("accord broker", problem) from None
    is_stream = is_stream or is_once
    if form is not None:
        read_choice(form, jobs.INPUTS, "--format")
    _check_progress(output, checkpoint, is_stream=is_stream, is_once=is_once)
    job = jobs.BrokerJob(
        source=events,
        form=form or jobs.form_of(events),
        options=dict(read_pairs(options or (), "--option")),
        columns=tuple(name.strip() for name in columns.split(",")) if columns else (),
        output=output or "",
        is_stream=is_stream,
        is_once=is_once,
        checkpoint=checkpoint or "",
        master=master,
    )
    job.check()
    found = open_predicates(predicates)
    began_s = time.monotonic()
    screen = open_console(stderr=True)
    with (
        TemporaryDirectory(prefix="accord-broker-") as work,
        ThreadPoolExecutor(max_workers=1) as pool,
    ):
        run = jobs.BrokerRun(job, found, Path(work), partial(print, flush=is_stream))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        running = pool.submit(run.run)
        try:
            count = running.result()
        except KeyboardInterrupt:
            run.stop()
            raise typer.Exit(0 if is_stream else _INTERRUPTED) from None
        except jobs.BrokerJobError as error:
            print_problem(screen, error)
            raise typer.Exit(1) from None
    spent = duration_text(time.monotonic() - began_s)
    found_text = "done" if count is None else f"{count:,} match{'' if count == 1 else 'es'}"
    print_line(screen, Text(f"{found_text} in {spent}", "dim"))


def _check_progress(
    output: str | None, checkpoint: str | None, *, is_stream: bool, is_once: bool
) -> None:
    if checkpoint is not None and not is_stream:
        raise InputError("--checkpoint", "expected --stream or --once with it")
    if is_once and output is None and checkpoint is None:
        raise InputError("--once", "expected --output or --checkpoint, to know what is new")
