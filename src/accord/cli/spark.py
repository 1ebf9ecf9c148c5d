"""`accord spark …`: Spark's own servers, for a pipeline that runs on a cluster."""

# Imports stand in the commands: help and completion must not wait for them.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from accord.cli.arguments import read_file
from accord.cli.parameters import argument, option, shared
from accord.core.model.errors import InputError
from accord.core.queries.spark_settings import CONNECT, problem_with_master
from accord.runtime.addresses import SocketAddress

MASTER_PORT: Final = 7_077
CONNECT_PORT: Final = 15_002
_FOLDER: Final = Path("accord-spark")
_MOST_BYTES: Final = 1_000_000
_LEAST_MB: Final = 256
_MOST_MB: Final = 1 << 20

app = typer.Typer(no_args_is_help=True, help="Start servers of a Spark cluster.")

Host = Annotated[str, shared("HOST", "Address of this machine to listen on.")]
Port = Annotated[int, shared("PORT", "Port to listen on; 0: a free one.", min=0, max=65_535)]
UiPort = Annotated[int, shared("PORT", "Port of its web page; 0: a free one.", min=0, max=65_535)]
Properties = Annotated[
    Path | None, shared("FILE", "Settings of Spark, as in spark-defaults.conf: secrets, TLS.")
]
Folder = Annotated[Path, shared("DIR", "Directory for its logs and scratch files.", "--work")]


@app.command()
def master(
    *,
    host: Host = "127.0.0.1",
    port: Port = MASTER_PORT,
    ui_port: UiPort = 0,
    properties: Properties = None,
    folder: Folder = _FOLDER,
) -> None:
    """Start the master of a standalone cluster, until Ctrl-C or SIGTERM."""
    from accord.pipeline.standalone import Listening, master_arguments, run

    _check(host, properties, "spark.authenticate")
    at = Listening(host=host, port=port, ui_port=ui_port)
    raise typer.Exit(run(master_arguments(at, properties), host=host, folder=folder))


@app.command()
def worker(
    url: str = argument("URL", "The master: spark://HOST:PORT."),
    *,
    host: Host = "127.0.0.1",
    port: Port = 0,
    ui_port: UiPort = 0,
    cores: int | None = option("N", "Cores for executors; default: all.", min=1, max=10_000),
    memory_mb: int | None = option(
        "MB", "Memory for executors; default: all but 1 GB.", min=_LEAST_MB, max=_MOST_MB
    ),
    properties: Properties = None,
    folder: Folder = _FOLDER,
) -> None:
    """Start a worker, until Ctrl-C or SIGTERM; its executors end with it.

    They run tasks with the Python and the packages of this command.
    """
    from accord.pipeline.standalone import Listening, run, worker_arguments

    if not url.startswith("spark://"):
        raise InputError("URL", f"expected spark://HOST:PORT, got {url[:80]!r}")
    _check(host, properties, "spark.authenticate")
    at = Listening(host=host, port=port, ui_port=ui_port)
    arguments = worker_arguments(
        at, properties, url=url, folder=folder, cores=cores, memory_mb=memory_mb
    )
    raise typer.Exit(run(arguments, host=host, folder=folder))


@app.command()
def connect(
    *,
    spark: str = option("URL", "Where its tasks run: local[N], spark://….", default="local[*]"),
    host: Host = "127.0.0.1",
    port: Port = CONNECT_PORT,
    ui_port: Annotated[
        int, shared("PORT", "Port of its web page; 0: none.", min=0, max=65_535)
    ] = 0,
    memory_mb: Annotated[
        int, shared("MB", "Memory of its driver.", min=_LEAST_MB, max=_MOST_MB)
    ] = 2_048,
    properties: Properties = None,
    folder: Folder = _FOLDER,
) -> None:
    """Start a Spark Connect server (sc://HOST:PORT), until Ctrl-C or SIGTERM."""
    from accord.pipeline.standalone import Listening, connect_arguments, run

    if not spark or spark.startswith(CONNECT) or problem_with_master(spark):
        raise InputError("--spark", f"expected local[N], spark://HOST:PORT or yarn, got {spark!r}")
    _check(host, properties, "spark.connect.authenticate.token")
    at = Listening(host=host, port=port, ui_port=ui_port)
    arguments = connect_arguments(at, properties, url=spark, folder=folder, memory_mb=memory_mb)
    raise typer.Exit(run(arguments, host=host, folder=folder))


def _check(host: str, properties: Path | None, login: str) -> None:
    """Warn of servers that anybody may use; the file must be readable."""
    text = b"" if properties is None else read_file(properties, _MOST_BYTES)
    if not SocketAddress(host, 0).is_loopback and login.encode() not in text:
        warning = f"{host}: whoever reaches it can run programs here: set {login} in --properties"
        typer.echo(f"warning: {warning}", err=True)
