"""`accord bench`: throughput and latency of a node."""

# Imports stand in the functions: help and completion must not wait for what measures.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_URL, Authority, Url, User

if TYPE_CHECKING:
    from rich.console import Console

    from accord.cli.bench.load import LoadShape
    from accord.cli.bench.report import BenchReport
    from accord.cli.bench.spawn import Spawned
    from accord.cli.connection import ConnectionTarget

INTERRUPTED: Final = 130
# For latency, if no rate is given: low enough to leave the node mostly idle.
MODERATE_HZ: Final = 1_000.0
MODERATE_SHARE: Final = 0.05
LATENCY_S: Final = 2.0


def bench(  # noqa: PLR0913 (a parameter per option)
    *,
    publishers: Annotated[int, typer.Option(min=1, max=1_000, metavar="N")] = 1,
    subscribers: Annotated[int, typer.Option(min=0, max=1_000, metavar="N")] = 1,
    size: Annotated[
        int, typer.Option(min=8, max=16_000_000, metavar="BYTES", help="Size of each payload.")
    ] = 100,
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, metavar="QOS")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3_600, metavar="S", help="How long to publish.")
    ] = 5.0,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=10_000_000,
            metavar="N",
            help="Events per second; as fast as possible by default.",
        ),
    ] = None,
    is_spawning: Annotated[
        bool, typer.Option("--spawn", help="Start a node for the time of the measurement.")
    ] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    url: Url = DEFAULT_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Measure how fast events go through a node, and how long they take.

    Each subscriber gets everything. Without --rate no more is published than gets through, and
    latency is measured afterwards, at a moderate rate.
    """
    from accord.cli.bench.load import LoadShape
    from accord.cli.bench.report import show_report, to_fields
    from accord.cli.screen import open_console

    shape = LoadShape(publishers=publishers, subscribers=subscribers, size=size, qos=qos)
    console = open_console(stderr=is_json)
    try:
        with ExitStack() as stack:
            node = stack.enter_context(_spawned(console)) if is_spawning else None
            target = _target(url if node is None else node.url, user, authority)
            report = _measure(target, shape, seconds, rate, node, console)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if is_json:
        typer.echo(json.dumps(to_fields(report)))
    else:
        show_report(console, report)


def _target(url: str, user: str | None, authority: Path | None) -> ConnectionTarget:
    from accord.cli.connection import read_target
    from accord.cli.errors import InputError

    target = read_target(url, user, authority)
    if target.address.scheme != "mqtt":
        problem = f"expected mqtt:// to measure, got {target.address.scheme}://"
        raise InputError("--url", problem)
    return target


@contextmanager
def _spawned(console: Console) -> Iterator[Spawned]:
    from accord.cli.bench.spawn import spawned_node

    with ExitStack() as stack:
        with console.status("starting a node") if console.is_terminal else nullcontext():
            node = stack.enter_context(spawned_node())
        yield node


def _measure(  # noqa: PLR0913, PLR0917 - in one place only
    target: ConnectionTarget,
    shape: LoadShape,
    seconds: float,
    rate_hz: float | None,
    node: Spawned | None,
    console: Console,
) -> BenchReport:
    from accord.cli.bench.load import BenchLoad
    from accord.cli.bench.report import BenchReport, title
    from accord.cli.screen import print_line

    with BenchLoad(target, shape) as load:
        print_line(console, f"{title(shape)}, {target.address.url}")
        console.print()
        cpu_s = None if node is None else node.cpu_s()
        with _progress(console, "publishing", seconds) as progress:
            throughput = load.run(seconds, rate_hz, progress)
        if cpu_s is not None and node is not None and (now_s := node.cpu_s()) is not None:
            cpu_s = now_s - cpu_s
        latency, latency_hz = throughput, rate_hz or 0.0
        if rate_hz is None and shape.subscribers:
            latency_hz = min(MODERATE_HZ, max(throughput.published_hz * MODERATE_SHARE, 1.0))
            spent_s = min(seconds, LATENCY_S)
            with _progress(console, "measuring latency", spent_s) as progress:
                latency = load.run(spent_s, latency_hz, progress)
    return BenchReport(
        url=target.address.url,
        host=target.address.host,
        shape=shape,
        throughput=throughput,
        latency=latency,
        latency_hz=latency_hz,
        requested_hz=rate_hz,
        node_cpu_s=cpu_s,
    )


@contextmanager
def _progress(console: Console, words: str, seconds: float) -> Iterator[Callable[[float], None]]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", style="dim"),
        BarColumn(40),
        TextColumn("{task.fields[left]}"),
    )
    is_seen = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as bar:
        task = bar.add_task(words, total=1.0, left="")

        def tell(share: float) -> None:
            bar.update(task, completed=share, left=f"{seconds * (1 - share):.0f} s")

        yield tell
