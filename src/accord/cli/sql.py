"""`accord sql`: queries the tables of an archive, on Spark or DataFusion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import typer
from rich.text import Text

from accord.cli.parameters import argument, flag, option
from accord.core.model.errors import InputError, file_problem
from accord.terminal.rows import Column, Table
from accord.terminal.screen import open_console, print_line, print_problem

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN: Final = 1_000  # rows on a terminal
_ENDINGS: Final = ".parquet, .arrow, .csv, .jsonl"


class SqlEngine(StrEnum):
    SPARK = "spark"
    DATAFUSION = "datafusion"


def sql(
    query: str = argument("QUERY", "Such as: SELECT channel, count(*) FROM events GROUP BY 1"),
    *,
    archive: str | None = option(
        "DIR|URI", "The archive.", show_default="that of the configuration"
    ),
    config: Path | None = option("FILE", "Configuration of the node.", show_default="accord.toml"),
    engine: SqlEngine = option(
        None, "DataFusion needs no Java, and has no datasets.", default=SqlEngine.SPARK
    ),
    master: str | None = option(
        "URL",
        "Spark master: local[*], spark://HOST:PORT, sc://HOST:PORT, …",
        show_default="[pipeline.spark], or local[*]",
    ),
    is_json: bool = flag("A JSON object for each row.", "--json"),
    output: Path | None = option("FILE", f"Write the rows to FILE ({_ENDINGS}).", "--output", "-o"),
) -> None:
    """Query the tables of an archive by SQL, on Spark or DataFusion.

    Tables are events and ledger; datasets quality, losses, uses, channel_rates, availability.

    Exit code 0, also without rows; 2 if the query is wrong.
    """
    # Imported late, so that other commands start faster; they may not be installed.
    try:
        from accord.apps.row_files import open_rows  # noqa: PLC0415
        from accord.config import load  # noqa: PLC0415
        from accord.pipeline.archive_sql import SqlError  # noqa: PLC0415
    except ImportError as error:
        problem = f"needs pip install 'accord[pipeline]' ({error})"
        raise InputError("accord sql", problem) from None
    settings = load(config)
    if archive is None:
        data = Path(settings.node.data or "accord-data")
        archive = settings.pipeline.archive or str(data / "archive")
    spark = settings.pipeline.spark
    try:
        file = None if output is None else open_rows(output)
    except OSError as error:
        raise InputError("--output", f"{output}: {file_problem(error)}") from None
    count = 0
    try:
        with _rows(engine, archive, query, master or spark.master, spark.settings) as rows:
            if file is not None:
                count = file.write_all(rows)
            elif is_json:
                count = _print_json(rows)
            else:
                count = _print_table(rows)
    except SqlError as error:
        print_problem(open_console(stderr=True), error)
        raise typer.Exit(2) from None
    finally:
        if file is not None:
            file.close()
    if file is not None:
        print_line(open_console(stderr=True), Text(f"{count:,} rows", "dim"))


@contextmanager
def _rows(
    engine: SqlEngine, archive: str, query: str, master: str, settings: dict[str, str]
) -> Iterator[pa.RecordBatchReader]:
    from accord.pipeline.archive_sql import query_datafusion  # noqa: PLC0415

    if engine is SqlEngine.DATAFUSION:
        yield query_datafusion(archive, query)
        return
    from accord.core.queries.messages import StartPipeline  # noqa: PLC0415
    from accord.pipeline.archive_sql import query_spark  # noqa: PLC0415

    with TemporaryDirectory(prefix="accord-sql-") as work:
        start = StartPipeline(
            node="sql",
            journal="",
            archive=archive,
            work=work,
            spark=master,
            spark_settings=settings,
        )
        with query_spark(archive, query, start) as rows:
            yield rows


def _print_json(rows: pa.RecordBatchReader) -> int:
    from accord.apps.row_files import json_lines  # noqa: PLC0415

    count = 0
    for batch in rows:
        typer.echo(json_lines(batch), nl=False)
        count += len(batch)
    return count


def _print_table(rows: pa.RecordBatchReader) -> int:
    import pyarrow as pa  # noqa: PLC0415

    from accord.apps.row_files import cell  # noqa: PLC0415

    lines: list[list[str]] = []
    count = 0
    for batch in rows:
        shown = batch.slice(0, SHOWN - len(lines)).to_pylist() if len(lines) < SHOWN else ()
        lines += [[cell(value) for value in row.values()] for row in shown]
        count += len(batch)
    is_number = pa.types.is_integer, pa.types.is_floating
    columns = [
        Column(each.name, is_number=any(test(each.type) for test in is_number))
        for each in rows.schema
    ]
    open_console().print(Table(*columns, rows=lines))
    if count > len(lines):
        print_line(open_console(stderr=True), f"{count - len(lines):,} more rows: --output FILE")
    return count
