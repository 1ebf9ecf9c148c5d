"""`accord bench`: throughput and latency of a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from accord.apps.load.load import ChannelLoad, LoadShape, LoadTarget
from accord.apps.load.report import BenchReport
from accord.apps.load.screen import progress_bar, show_report, title
from accord.apps.node_process import NodeProcess
from accord.cli.arguments import read_duration_s, read_size
from accord.cli.connection import ConnectionTarget, unreachable
from accord.cli.options import Authority, ContextName, Url, User, connection_target
from accord.cli.parameters import flag, option
from accord.core.model.errors import InputError
from accord.terminal.screen import open_console, print_line

INTERRUPTED: Final = 130
# For latency, if no rate is given: low enough to leave the node mostly idle.
MODERATE_HZ: Final = 1_000.0
MODERATE_SHARE: Final = 0.05
MIN_SIZE: Final = 8
MAX_SIZE: Final = 16_000_000
MIN_S: Final = 0.1
MAX_S: Final = 3_600.0
LATENCY_S: Final = 2.0


def bench(
    *,
    publishers: int = option("N", "Number of publishers.", min=1, max=1_000, default=1),
    subscribers: int = option("N", "Number of subscribers.", min=0, max=1_000, default=1),
    size: str = option("SIZE", "Size of each payload, such as 100 or 10KB.", default="100"),
    qos: int = option(
        "QOS", "QoS of events and subscriptions.", "--qos", "-q", min=0, max=2, default=0
    ),
    seconds: str = option("TIME", "How long to publish, such as 5s or 2min.", default="5s"),
    rate: float | None = option(
        "N", "Events per second; as fast as possible by default.", min=1, max=10_000_000
    ),
    is_spawning: bool = flag("Start a node for the time of the measurement.", "--spawn"),
    is_json: bool = flag("Print one JSON object.", "--json"),
    url: Url = None,
    context_name: ContextName = None,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Measure how fast events go through a node, and how long they take.

    Each subscriber gets everything. Without --rate no more is published than gets through, and
    latency is measured afterwards, at a moderate rate.
    """
    seconds_s, size_bytes = read_duration_s(seconds, "--seconds"), read_size(size, "--size")
    if not MIN_SIZE <= size_bytes <= MAX_SIZE:
        raise InputError("--size", f"expected {MIN_SIZE} to {MAX_SIZE:,} bytes, got {size!r}")
    if not MIN_S <= seconds_s <= MAX_S:
        raise InputError("--seconds", f"expected 100ms to 1h, got {seconds!r}")
    shape = LoadShape(publishers=publishers, subscribers=subscribers, size=size_bytes, qos=qos)
    console = open_console(stderr=is_json)
    try:
        with ExitStack() as stack:
            node = stack.enter_context(_spawned(console)) if is_spawning else None
            target = _target(url if node is None else node.mqtt_url, context_name, user, authority)
            report = _measure(target, shape, seconds_s, rate, node, console)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if is_json:
        typer.echo(json.dumps(report.to_fields()))
    else:
        show_report(console, report)


def _target(
    url: str | None, context_name: str | None, user: str | None, authority: Path | None
) -> ConnectionTarget:
    target = connection_target(url, context_name, user, authority)
    if target.address.scheme != "mqtt":
        problem = f"expected mqtt:// to measure, got {target.address.scheme}://"
        raise InputError("--url", problem)
    return target


@contextmanager
def _spawned(console: Console) -> Iterator[NodeProcess]:
    with NodeProcess() as node:
        with console.status("starting a node") if console.is_terminal else nullcontext():
            node.wait_ready()
        yield node


def _measure(
    target: ConnectionTarget,
    shape: LoadShape,
    seconds: float,
    rate_hz: float | None,
    node: NodeProcess | None,
    console: Console,
) -> BenchReport:
    with _connected(target, shape) as load:
        print_line(console, f"{title(shape)}, {target.address.url}")
        console.print()
        cpu_s = None if node is None else node.cpu_s()
        with progress_bar(console, "publishing", seconds) as progress:
            throughput = load.run(seconds, rate_hz, progress)
        if cpu_s is not None and node is not None and (now_s := node.cpu_s()) is not None:
            cpu_s = now_s - cpu_s
        latency, latency_hz = throughput, rate_hz or 0.0
        if rate_hz is None and shape.subscribers:
            latency_hz = min(MODERATE_HZ, max(throughput.published_hz * MODERATE_SHARE, 1.0))
            spent_s = min(seconds, LATENCY_S)
            with progress_bar(console, "measuring latency", spent_s) as progress:
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


def _connected(target: ConnectionTarget, shape: LoadShape) -> ChannelLoad:
    address = target.address
    password = None if target.password is None else target.password.encode()
    try:
        return ChannelLoad(LoadTarget(address.host, address.port, target.username, password), shape)
    except OSError as error:
        raise unreachable(error, address.url, address.host) from None
