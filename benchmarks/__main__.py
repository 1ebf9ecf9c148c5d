"""`python -m benchmarks`: all benchmarks, or those named."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from time import perf_counter
from typing import Final

from benchmarks.contenders import ACCORD_OLD, CONTENDERS
from benchmarks.options import QUICK, Options, progress
from benchmarks.report import keep, show
from benchmarks.workloads import BLOCK, WORKLOADS

NAMES: Final = (
    "parsing",
    "matching",
    "covering",
    "peers",
    "brokers",
    "latency",
    "connections",
    "predicates",
    "policies",
    "limits",
    "archive",
    "archive_queries",
    "bulk",
    "routes",
    "overlay",
    "forwarding",
    "five_cities",
    "channels",
    "negotiation",
    "negotiation_live",
    "admission",
    "admission_live",
    "trees",
    "recovery",
    "startup",
    "console",
    "console_history",
)

CASES: Final = (
    "plain",
    "properties",
    "policies",
    "predicates",
    "shared",
    "qos1",
    "kept",
    "ledger",
    "trips",
    "paced",
    "idle",
    "subscriptions",
)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(arguments)
    options = QUICK if asked.quick else Options()
    options = replace(
        options,
        sizes=asked.sizes or options.sizes,
        workloads=tuple(asked.workloads),
        contenders=asked.contenders,
        cases=asked.cases,
        connections=asked.connections,
    )
    for name in asked.names or NAMES:
        started = perf_counter()
        benchmark = import_module(f"benchmarks.{name}")
        tables = benchmark.run(options)
        for table in tables:
            show(table)
        is_full = options == Options() and not ACCORD_OLD
        path = keep(name, benchmark.ABOUT, tables, is_full=is_full)
        progress(f"{name}: {perf_counter() - started:.0f} s, written to {path.name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], metavar="name")
    parser.add_argument("--quick", action="store_true", help="about a minute, up to 10,000")
    parser.add_argument("--sizes", type=_sizes, help="numbers of predicates: 1000,10000")
    parser.add_argument(
        "--workloads",
        type=lambda text: text.split(","),
        default=[],
        help=", ".join(dict.fromkeys(workload.name for workload in WORKLOADS)),
    )
    parser.add_argument(
        "--contenders",
        type=_contenders,
        default=(),
        help="brokers to compare: " + ", ".join(contender.name for contender in CONTENDERS),
    )
    parser.add_argument(
        "--connections", type=int, default=0, help="to hold idle, 100000 if not given"
    )
    parser.add_argument(
        "--cases",
        type=_cases,
        default=(),
        help="of brokers, latency and connections, only these: " + ", ".join(CASES),
    )
    return parser


def _contenders(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    known = [contender.name for contender in CONTENDERS]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(known)}, got {', '.join(unknown)}"
        )
    return names


def _cases(text: str) -> tuple[str, ...]:
    cases = tuple(text.split(","))
    if unknown := [case for case in cases if case not in CASES]:
        raise argparse.ArgumentTypeError(
            f"expected some of {', '.join(CASES)}, got {', '.join(unknown)}"
        )
    return cases


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(map(int, text.split(",")))
    if any(size <= 0 or size % BLOCK for size in sizes):
        raise argparse.ArgumentTypeError(f"expected multiples of {BLOCK:,}, got {text}")
    return sizes


if __name__ == "__main__":
    main()
