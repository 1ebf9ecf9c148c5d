"""`accord pipeline`: the data pipeline of a site."""

# Imports stand in the command: help and completion must not wait for them.
# ruff: noqa: PLC0415

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import typer

from accord.cli.connection import PASSWORD
from accord.cli.parameters import option
from accord.core.model.errors import InputError

if TYPE_CHECKING:
    from accord.config import Config
    from accord.core.queries.messages import StartPipeline


def pipeline(
    config: Path | None = option("FILE", "Configuration; default: ./accord.toml if it exists."),
    data: str | None = option("DIR", "Data directory; default accord-data."),
    spark: str | None = option(
        "URL", "Where Spark runs: spark://…, sc://…; default: in this process."
    ),
) -> None:
    """Archive the journals of many nodes and answer their queries.

    The nodes are those under [pipeline.nodes]; each has site = true under [pipeline].
    """
    from accord.config import load
    from accord.config.node import prepare_directory
    from accord.runtime.logs import start_logs
    from accord.runtime.pipeline import why_missing

    settings = load(config, data=data, spark=spark)
    if not settings.pipeline.nodes:
        raise InputError("[pipeline.nodes]", 'expected nodes, such as n1 = "http://host:8080"')
    if missing := why_missing():
        raise InputError("accord pipeline", missing)
    prepare_directory(settings.node.directory)
    with start_logs(settings.log):
        from accord.pipeline.process import RETRY, end_children, leave
        from accord.pipeline.site import run_site

        typer.echo(f"accord pipeline: {', '.join(settings.pipeline.nodes)}")
        code = run_site(_start(settings))
    if code == RETRY:  # Java, once ended, can't be started again in the same process
        end_children()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    leave(code)


def _start(config: Config) -> StartPipeline:
    from accord.core.queries.messages import StartPipeline
    from accord.runtime.pipeline import ARCHIVE, WORK, archive_place

    data, settings = config.node.directory, config.pipeline
    if data is None:
        raise InputError("node.data", "expected a directory for the archive (or --data)")
    return StartPipeline(
        node="site",
        journal="",
        archive=archive_place(settings.archive or data / ARCHIVE),
        work=str((data / WORK).resolve()),
        spark=settings.spark.master,
        spark_settings=settings.spark.settings,
        interval_ms=settings.interval_ms,
        retain_ms=settings.retain_s * 1_000 or None,
        large_bytes=settings.large_bytes,
        memory_mb=settings.memory_mb,
        timeout_s=settings.timeout_s,
        declared=config.declared,
        journals={node: _with_password(url) for node, url in settings.nodes.items()},
    )


def _with_password(url: str) -> str:
    """The address, with the password of the environment if it has a user but no password."""
    from accord.core.queries.journal_http import parse_node_address

    address = parse_node_address(url)
    password = os.environ.get(PASSWORD)
    if address.user is None or address.password is not None or password is None:
        return url
    scheme, _, rest = address.url.partition("://")
    return f"{scheme}://{quote(address.user, safe='')}:{quote(password, safe='')}@{rest}"
