"""How long after its start a node's data pipeline answers, and how long the first queries take."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import cpu_s, started, with_children
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "`accord up` with its defaults, the demonstration running, and an archive of a minute from "
    "an earlier start. Ready: from the start of the command until the status says that the "
    "pipeline is. Then the same query is asked over HTTP again and again: `demo/feeder/+` where "
    "load_mw > 4, the newest 20 of the last hour; next: the median of ten. CPU: what "
    "node, pipeline and Java have used until ready, which depends less than the rest on what else "
    "the machine does (load: its load average after the try). Bars, on a machine that has nothing "
    "else to do: ready within 15 s, the first query within 3 s, the next within 300 ms."
)
_FILL_S: Final = 60.0
_NEXT: Final = 10
_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 300.0
_QUERY: Final = "/api/v1/query?" + urlencode(
    {"channel": "demo/feeder/+", "where": "load_mw > 4", "since": "-1h", "page": 20}
)


@dataclass(frozen=True)
class Started:
    ready_s: float
    cpu_s: float
    first_s: float
    next_s: float  # the median
    load: float


def run(options: Options) -> list[Table]:
    table = Table(
        "Starts after the first", ["try", "ready s", "CPU s", "first ms", "next ms", "load"]
    )
    with TemporaryDirectory() as folder:
        progress("startup: fills an archive")
        with _node(Path(folder)) as (_, url):
            _until_ready(url)
            time.sleep(_FILL_S / 10 if options.is_quick else _FILL_S)
        tries = []
        for place in range(options.rounds):
            progress(f"startup: try {place + 1}")
            tries.append(_measure(Path(folder)))
            _add(table, str(place + 1), tries[-1])
    best = [min(getattr(each, name) for each in tries) for name in Started.__dataclass_fields__]
    _add(table, "best", Started(*best))
    return [table]


def _measure(folder: Path) -> Started:
    began_s = time.perf_counter()
    with _node(folder) as (process, url):
        _until_ready(url)
        ready_s, used_s = time.perf_counter() - began_s, cpu_s(with_children(process))
        times_s = [_time_query(url) for _ in range(1 + _NEXT)]
        return Started(ready_s, used_s, times_s[0], median(times_s[1:]), os.getloadavg()[0])


@contextmanager
def _node(folder: Path) -> Iterator[tuple[int, str]]:
    """A node with its data in `folder`: its process, and where its API is."""
    mqtt, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    listen = ("--mqtt", mqtt, "--http", http, "--websocket", "")
    command = (sys.executable, "-m", "accord", "up", *listen, "--data", str(folder / "data"))
    with started(command, os.environ, folder / "log") as process:
        yield process.pid, f"http://{http}"


def _until_ready(url: str) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        try:
            status = _get(f"{url}/api/v1/status")
        except OSError:  # nobody listens yet
            status = None
        if status and status["statistics"]["pipeline"]["state"] == "ready":
            return
        time.sleep(_LOOK_S)
    raise TimeoutError(f"the pipeline was not ready within {_PATIENCE_S:.0f} s")


def _time_query(url: str) -> float:
    began_s = time.perf_counter()
    assert _get(url + _QUERY)["events"]
    return time.perf_counter() - began_s


def _get(url: str) -> Any:
    with urlopen(url, timeout=_PATIENCE_S) as answer:  # noqa: S310 (our own node)
        return json.load(answer)


def _add(table: Table, name: str, found: Started) -> None:
    table.add(
        name,
        significant(found.ready_s),
        significant(found.cpu_s),
        number(found.first_s * 1_000),
        number(found.next_s * 1_000),
        number(found.load, 1),
    )
