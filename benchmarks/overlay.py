"""Many nodes in virtual time: what arrives in time, what is endured, and how it grows."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

from benchmarks.measure import apart
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant
from benchmarks.simulated import endurance, growth, in_time
from benchmarks.simulated.growth import Grown
from benchmarks.simulated.in_time import Counts, Way

ABOUT: Final = (
    "The nodes of a live network, in the simulator. In time: 50 nodes with recorded delays between "
    "them, links that fail for 20 s at a time without a sign, 4 % of them at any time; channels "
    "between nodes chosen by chance, each with a bound of 1.2 times what it takes at the worst "
    "moment with any one link of the shortest path missing. What is due are all events for which "
    "there was any way when they were published. Flooding sends everything to all neighbours; one "
    "path without a bound is shortest-path routing. Endurance: 100 nodes whose links lose up to "
    "half of what is sent, with failing links and nodes, partitions, and subscribers that come and "
    "go. Growth: all nodes start at once, until each knows all others; then nothing happens, and "
    "then one link fails."
)
_WAYS: Final = (
    Way("two paths", paths=2),
    Way("two paths, QoS 1", paths=2, qos=1),
    Way("one path", paths=1),
    Way("shortest path, no bound", has_bound=False),
    Way("flooding", template=in_time.FLOOD),
)
_AIM: Final = 0.99


def run(options: Options) -> list[Table]:
    if options.is_quick:
        return [_in_time(4, 30), _endured(600, 20), _grown((20, 50))]
    return [_in_time(30, 240), _endured(5_400, endurance.NODES), _grown((125, 250, 500, 1_000))]


def _in_time(channels: int, seconds: int) -> Table:
    table = Table(
        f"In time while 4 % of links fail: {channels} channels, {seconds} s",
        ["delays", "way", "due", "in time", "delivered", "events on links", "bytes", "control B/s"],
    )
    for net in in_time.nets():
        pairs = in_time.pairs(net, channels, 1)
        for way in _WAYS:
            progress(f"overlay: {net.name}, {way.name}")
            counts = in_time.measure(net, way, pairs, seconds=seconds, seed=1)
            table.add(net.name, way.name, *_cells(counts, seconds))
    table.notes = [
        "Events on links and bytes: per event that was due. Control: of the whole network.",
        f"The aim is {_AIM:.0%} in time by two paths.",
    ]
    return table


def _cells(counts: Counts, seconds: int) -> Sequence[str]:
    return (
        number(counts.due),
        f"{counts.in_time / counts.due:.3%}",
        f"{counts.delivered / counts.due:.3%}",
        significant(counts.copies / counts.due),
        number(counts.bytes / counts.due),
        number(counts.control_bytes / seconds),
    )


def _endured(seconds: int, nodes: int) -> Table:
    progress(f"overlay: {nodes} nodes for {seconds / 3_600:.1f} h")
    found = endurance.measure(seconds, nodes)
    table = Table(
        f"{nodes} nodes, links that lose up to 50 %",
        ["hours", "findings", "invariants checked", "QoS 1 delivered", "missed", "sent again",
         "routes computed", "CPU s"],
    )  # fmt: skip
    table.add(
        significant(found.hours),
        number(len(found.outcome.findings)),
        number(found.checks),
        number(found.acknowledged),
        number(found.missed),
        number(found.sent_again),
        number(found.computed),
        number(found.cpu_s),
    )
    table.notes = [
        "Findings: invariants broken, nodes that know other facts than the rest in the end, and",
        "what was missed.",
        "Missed: QoS 1 events that a subscriber who was there all the time did not get.",
    ]
    return table


def _grown(sizes: Sequence[int]) -> Table:
    found = []
    for size in sizes:
        progress(f"overlay: growth, {size} nodes")
        found.append(apart(growth.measure, size))
    return growth_table(found)


def growth_table(found: Sequence[Grown]) -> Table:
    table = Table(
        "Growth, for each node",
        ["nodes", "links", "converged s", "CPU ms", "KB", "messages", "KB sent", "quiet CPU µs/s",
         "failure CPU µs", "CPU by size", "KB by size"],
    )  # fmt: skip
    before = [None, *found]
    for last, each in zip(before, found, strict=False):
        table.add(
            number(each.nodes),
            number(each.links),
            number(each.converged_s),
            significant(1e3 * each.cpu_s / each.nodes),
            significant(each.bytes / 1024 / each.nodes),
            number(each.messages / each.nodes),
            number(each.sent_bytes / 1024 / each.nodes),
            number(1e6 * each.quiet_cpu_s / each.nodes),
            number(1e6 * each.failure_cpu_s / each.nodes),
            "–" if last is None else _exponent(last.nodes, each.nodes, last.cpu_s, each.cpu_s),
            "–" if last is None else _exponent(last.nodes, each.nodes, last.bytes, each.bytes),
        )
    table.notes = [
        "By size: to which power of the number of nodes the figure of one node grows (1: linear).",
        "Each node knows of every other: linear for one node is the least there can be.",
    ]
    return table


def _exponent(smaller: int, larger: int, less: float, more: float) -> str:
    """Of one node's share."""
    share = (more / larger) / (less / smaller)
    return significant(log(share) / log(larger / smaller))
