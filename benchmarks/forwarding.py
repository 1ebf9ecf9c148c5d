"""What it costs to send an event on to another node: CPU time per event and hop."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.contenders import ACCORD, StartError, wait_for
from benchmarks.load import Load, Messages, Shape
from benchmarks.mqtt import Mqtt
from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import cpu_s, started, with_children
from benchmarks.race import complete
from benchmarks.report import Table, significant

ABOUT: Final = (
    "Nodes in a line, each a process: a client publishes to the first as fast as it is taken, "
    "another has subscribed at the last. One node is the ordinary case without any hop. All lines "
    "run, and take turns; CPU time of all nodes of a line, in user and kernel, medians of the "
    "rounds. A hop is what a line takes more than one with a node less."
)
_NODES: Final = (1, 2, 3, 4)
_CASES: Final = ((0, 100), (0, 1_024), (1, 100), (1, 1_024))
_BURST_S: Final = 1.0
_QUICK_BURST_S: Final = 0.2
_WARM_UPS: Final = 3
_JOIN_S: Final = 30.0
_ALL_BY_TCP: Final = '[[net.transports]]\nchannels = "#"\ntransport = "tcp"\n'
_KNOWN_S: Final = 1.0  # by then the first node knows of a subscription at the last


@dataclass(frozen=True)
class Paced(Mqtt):
    """With no more messages on their way than `window`."""

    window: int = 0

    def enter(self, connection: socket.socket, name: str) -> int:
        return min(super().enter(connection, name), self.window)


class Line:
    """Nodes of which each is linked with the next."""

    def __init__(
        self, process_ids: Sequence[int], ports: Sequence[int], http_port: int, links: Sequence[int]
    ) -> None:
        self.process_ids = process_ids
        self.ports = ports
        self.http_port = http_port  # of the first
        self.links = links  # where each listens for the next
        self._ends = [ports[-1], ports[0]]  # a load connects its subscriber first

    def load(self, qos: int, size: int, window: int = 0) -> Load:
        """`window`: how many messages are on their way at most, if not as many as fit."""
        ends = iter(self._ends)

        def connect() -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", next(ends)), _JOIN_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection

        dialect = Paced(4, qos, window) if window else Mqtt(4, qos)
        return Load(connect, dialect, Shape("1→1"), Messages(size))


@contextmanager
def line_of(nodes: int, dialled: Sequence[int] = ()) -> Iterator[Line]:
    """`dialled`: where each node dials the one before it, if not there; then all goes by TCP."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        ports, links, (http_port,) = free_ports(nodes), free_ports(nodes), free_ports(1)
        process_ids: list[int] = []
        for number in range(nodes):
            file = folder / f"{number}.toml"
            file.write_text(_configuration(number, ports, links, dialled or links, http_port))
            log = folder / f"{number}.log"
            command = [ACCORD, "up", "--no-demo", "--no-pipeline", "--config", str(file)]
            process = stack.enter_context(started(command, os.environ, log))
            wait_for(process, ports[number], log)
            process_ids += with_children(process.pid)
        yield Line(process_ids, ports, http_port, links)


def _configuration(
    number: int, ports: Sequence[int], links: Sequence[int], dialled: Sequence[int], http_port: int
) -> str:
    neighbours = f'"127.0.0.1:{dialled[number - 1]}"' if number else ""
    http = "" if number else f"127.0.0.1:{http_port}"
    net = f'[net]\nlisten = "127.0.0.1:{links[number]}"\nneighbours = [{neighbours}]\n'
    return (
        f'[node]\nname = "n{number}"\ndata = ""\n'
        f'[listen]\nmqtt = "127.0.0.1:{ports[number]}"\nwebsocket = ""\nhttp = "{http}"\n'
        f"{net if len(ports) > 1 else ''}"
        f"{_ALL_BY_TCP if dialled is not links else ''}"
    )


def join(line: Line) -> None:
    """Wait until what is published at one end arrives at the other."""
    deadline = time.monotonic() + _JOIN_S
    while time.monotonic() < deadline:
        with closing(line.load(0, 100)) as load:
            time.sleep(_KNOWN_S)
            if not load.run(1).lost:
                return
    raise StartError("nothing arrives at the other end")


def warm_up(load: Load) -> float:
    """How fast it is, in events per second."""
    for _ in range(_WARM_UPS):
        burst = complete(load.run(3 * load.window))
    return burst.published / burst.wall_s


def run(options: Options) -> list[Table]:
    burst_s = _QUICK_BURST_S if options.is_quick else _BURST_S
    table = Table(
        "CPU µs per event of all nodes in a line",
        ["QoS", "payload", *(f"{n} node{'s' if n > 1 else ''}" for n in _NODES),
         "first hop", "each further", "further by 1 node"],
    )  # fmt: skip
    with ExitStack() as stack:
        lines = {nodes: stack.enter_context(line_of(nodes)) for nodes in _NODES}
        for line in lines.values():
            join(line)
        for qos, size in _CASES:
            progress(f"forwarding: QoS {qos}, {size} B")
            costs = _costs(lines, qos, size, options.rounds, burst_s)
            first_us = costs[2] - costs[1]
            further_us = (costs[_NODES[-1]] - costs[2]) / (_NODES[-1] - 2)
            table.add(
                str(qos),
                f"{size:,} B",
                *(significant(costs[nodes]) for nodes in _NODES),
                significant(first_us),
                significant(further_us),
                significant(further_us / costs[1]),
            )
    table.notes.append(
        "The first hop has what happens once on the way: from client to link, and back to client."
    )
    return [table]


def _costs(
    lines: dict[int, Line], qos: int, size: int, rounds: int, burst_s: float
) -> dict[int, float]:
    spent: dict[int, list[float]] = {nodes: [] for nodes in lines}
    with ExitStack() as stack:
        loads = {n: stack.enter_context(closing(line.load(qos, size))) for n, line in lines.items()}
        time.sleep(_KNOWN_S)
        rates_hz = {nodes: warm_up(load) for nodes, load in loads.items()}
        for _ in range(rounds):
            for nodes, load in loads.items():
                before_s = cpu_s(lines[nodes].process_ids)
                burst = complete(load.run(int(rates_hz[nodes] * burst_s)))
                used_s = cpu_s(lines[nodes].process_ids) - before_s
                spent[nodes].append(1e6 * used_s / burst.delivered)
    return {nodes: median(each) for nodes, each in spent.items()}
