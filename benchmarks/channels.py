"""What each template gives and costs, on real nodes: latency, jitter, throughput, CPU per hop."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, closing
from http.client import HTTPConnection
from itertools import pairwise
from random import Random
from statistics import mean, median, quantiles
from typing import Final
from urllib.parse import quote

from accord.apps.five_cities.relays import Relay
from accord.client.session import Session, connect
from benchmarks.forwarding import Line, join, line_of, warm_up
from benchmarks.options import Options, progress
from benchmarks.processes import cpu_s
from benchmarks.race import complete
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "Five nodes in a line, each a process. The channel is bound to one template after the "
    "other, in turns. Costs: a client publishes at the first node, as long as no more than 256 "
    "events are on their way to another at the last; CPU time of all nodes, medians. Latency: each "
    "link takes 10 ms, give or take 3, by TCP; 100 events/s from the first node to the last, at "
    "QoS 0. Jitter is the mean difference between one event's latency and the next one's."
)
TEMPLATES: Final = ("routed", "single_source", "unreliable", "reliable", "total_order")
_NODES: Final = 5
_SIZE: Final = 100
_WINDOW: Final = 256  # messages: no more than datagrams can wait for, where they are used
_BURST_S: Final = 1.0
_SETTLE_S: Final = 1.5  # until all nodes know how the channel is bound
_DELAY_MS: Final = 10.0
_JITTER_MS: Final = 3.0
_RATE_HZ: Final = 100
_EVENTS: Final = 400
_PATIENCE_S: Final = 20.0


def run(options: Options) -> list[Table]:
    rounds = 1 if options.is_quick else options.rounds
    return [_costs(rounds), asyncio.run(_latencies(rounds))]


def bind(line: Line, template: str) -> None:
    connection = HTTPConnection("127.0.0.1", line.http_port, timeout=10)
    body = json.dumps({"template": template})
    path = f"/api/v1/channels/{quote('bench/#', safe='')}"
    connection.request("PUT", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()
    time.sleep(_SETTLE_S)


def _costs(rounds: int) -> Table:
    table = Table("QoS 0, 100 B", ["template", "events/s", "CPU µs per event", "per hop"])
    rates_hz: dict[str, list[float]] = {each: [] for each in TEMPLATES}
    spent_us: dict[str, list[float]] = {each: [] for each in TEMPLATES}
    with line_of(_NODES) as line:
        join(line)
        for turn in range(rounds):
            for template in TEMPLATES:
                progress(f"channels: {template}, round {turn + 1} of {rounds}")
                bind(line, template)
                with closing(line.load(0, _SIZE, _WINDOW)) as load:
                    time.sleep(_SETTLE_S)
                    count = int(warm_up(load) * _BURST_S)
                    before_s = cpu_s(line.process_ids)
                    burst = complete(load.run(count))
                    used_s = cpu_s(line.process_ids) - before_s
                rates_hz[template].append(burst.delivered / burst.wall_s)
                spent_us[template].append(1e6 * used_s / burst.delivered)
    for template in TEMPLATES:
        cost_us = median(spent_us[template])
        rate = number(round(median(rates_hz[template])))
        table.add(template, rate, significant(cost_us), significant(cost_us / (_NODES - 1)))
    table.notes.append("Two cores for all, the load too: CPU per event is the steadier figure.")
    return table


async def _latencies(rounds: int) -> Table:
    table = Table(
        f"From the first node to the last, ms ({_NODES - 1} links of {_DELAY_MS:.0f} ms)",
        ["template", "events", "p50", "p95", "p99", "jitter"],
    )
    found: dict[str, list[float]] = {each: [] for each in TEMPLATES}
    jitter: dict[str, list[float]] = {each: [] for each in TEMPLATES}
    async with AsyncExitStack() as stack:
        random = Random(8)
        relays = [
            Relay(_DELAY_MS, jitter_ms=_JITTER_MS, random=random.random) for _ in range(_NODES - 1)
        ]
        for relay in relays:
            await relay.start()
            stack.push_async_callback(relay.close)
        line = await asyncio.to_thread(
            stack.enter_context, line_of(_NODES, [each.port for each in relays])
        )
        for relay, port in zip(relays, line.links, strict=False):
            relay.set_target(port)
        source, member = [
            await stack.enter_async_context(connect(f"mqtt://127.0.0.1:{port}"))
            for port in (line.ports[0], line.ports[-1])
        ]
        await asyncio.sleep(5 * _SETTLE_S)  # links are measured
        for turn in range(rounds):
            for template in TEMPLATES:
                progress(f"channels: latency of {template}, round {turn + 1} of {rounds}")
                await asyncio.to_thread(bind, line, template)
                times_ms = await _measure(source, member)
                found[template] += times_ms
                jitter[template].append(mean(abs(b - a) for a, b in pairwise(times_ms)))
    for template, times_ms in found.items():
        cuts = quantiles(times_ms, n=100, method="inclusive")
        shown = (cuts[49], cuts[94], cuts[98], median(jitter[template]))
        table.add(template, number(len(times_ms)), *(significant(each) for each in shown))
    return table


async def _measure(source: Session, member: Session) -> list[float]:
    """How long each event took, in the order in which they came."""
    times_ms: list[float] = []
    async with member.subscribe("bench/#") as events:
        await asyncio.sleep(_SETTLE_S)
        await source.publish("bench/x", b"", qos=0)  # routes and trees are there after it
        await asyncio.wait_for(anext(events), _PATIENCE_S)

        async def publish() -> None:
            began_s = time.perf_counter()
            for each in range(_EVENTS):
                await asyncio.sleep(began_s + each / _RATE_HZ - time.perf_counter())
                await source.publish("bench/x", str(time.perf_counter_ns()).encode(), qos=0)

        publishing = asyncio.create_task(publish())
        try:
            async with asyncio.timeout(_EVENTS / _RATE_HZ + _PATIENCE_S):
                while len(times_ms) < _EVENTS:
                    sent_ns = int((await anext(events)).payload)
                    times_ms.append((time.perf_counter_ns() - sent_ns) / 1e6)
        finally:
            await publishing
    return times_ms
