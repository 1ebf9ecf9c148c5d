"""`python -m benchmarks.table2`: the paper's experiment in one run."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence
from time import perf_counter
from types import FrameType
from typing import Final, NoReturn

from benchmarks.aims import aims_table
from benchmarks.options import progress
from benchmarks.report import Table, keep, show
from benchmarks.table2 import bandwidth, cpu, wires
from benchmarks.table2.aims import aims
from benchmarks.table2.nodes import IMPORTANCES, IMPORTANT, NORMAL, QUEUE_BYTES
from benchmarks.table2.tables import bandwidth_table, cpu_table, further_links, paper

ABOUT: Final = (
    "An important and a normal channel share a node that is overloaded. CPU: "
    f"{cpu.SUBSCRIBERS} subscribers with predicates that have to be evaluated one by one, "
    f"{cpu.PUBLISHERS} publishers at full speed on the normal channel, each event matches one "
    "subscriber. Bandwidth: one subscriber that takes all behind a link of "
    f"{bandwidth.KBPS} kbit/s (`tbf` between network namespaces, {bandwidth.PUBLISHERS} publishers "
    f"that offer {bandwidth.OVERLOAD:g} times as much on the normal channel, images of 42 to 70 KB "
    "and small events); the important channel is offered "
    f"{bandwidth.IMPORTANT_SHARE:.0%} of it, in images. `fifo` is the same node with one "
    "queue and no policies; otherwise the only policies are that the important channel has "
    f"importance {IMPORTANCES[IMPORTANT]} and the normal one {IMPORTANCES[NORMAL]}. Nobody tells "
    f"the node how fast the link is. All may hold {QUEUE_BYTES // 1_000_000} MB for a subscriber. "
    "Everything is QoS 1, except towards the 40. Latency is from when an event was due at its "
    "publisher until all of it was at the subscriber; delivered: of what was due in the measured "
    "time, what had arrived by the end of the trial. Link use: against a plain TCP transfer over "
    "the same link. Publishers and subscribers are processes of their own."
)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    started = perf_counter()
    try:
        tables = _tables(asked)
    except KeyboardInterrupt:
        raise SystemExit("stopped, and everything that was started with it") from None
    for table in tables:
        show(table)
    is_full = not (asked.quick or asked.only)
    path = keep("table2", ABOUT, tables, is_full=is_full)
    progress(f"table2: {perf_counter() - started:.0f} s, written to {path.name}")


def _tables(asked: argparse.Namespace) -> list[Table]:
    stop = threading.Event()
    first: cpu.Half | None = None
    second: bandwidth.Half | None = None
    skipped = None
    if asked.only in {None, "bandwidth"}:
        skipped = wires.missing()
        if skipped is None:
            effort = bandwidth.QUICK if asked.quick else bandwidth.FULL
            second = bandwidth.measure(effort, stop)
        else:
            progress(f"bandwidth: skipped: {skipped}")
    if asked.only in {None, "cpu"}:
        trials = cpu.QUICK if asked.quick else cpu.FULL
        first = cpu.measure(trials, stop)
    tables = [paper(first, second)]
    if skipped:
        tables[0].notes.append(f"Bandwidth: skipped: {skipped}.")
    if first is not None:
        tables.append(cpu_table(first))
    if second is not None:
        tables += [bandwidth_table(second), further_links(second)]
    return [*tables, aims_table(aims(first, second))]


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table2", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about three minutes")
    parser.add_argument("--only", choices=("cpu", "bandwidth"), help="one half of it")
    return parser


if __name__ == "__main__":
    main()
