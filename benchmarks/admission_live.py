"""The paper's experiment with real nodes: what clients lose with and without admission."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final, TypeVar

from accord.client.errors import AdmissionRefusedError, ConnectionFailedError
from accord.client.http import HttpClient
from accord.client.session import Session, connect
from accord.client.subscription import Subscription
from accord.core.model.errors import AccordError
from accord.operations.admission import GetAdmission
from accord.operations.channels import GetNet
from accord.operations.operation import Request
from benchmarks.admission_plots import draw
from benchmarks.options import Options, progress
from benchmarks.ports import free_ports
from benchmarks.processes import cpu_s, started
from benchmarks.report import RESULTS, Table, number

_HOST: Final = "127.0.0.1"
_CLIENTS: Final = 6
_CHANNELS: Final = 10  # at each of the two nodes
_RATE_HZ: Final = 4
_PAYLOAD: Final = 950
_EVENT_BYTES: Final = 1_000  # a frame has a little less
_CLIENT_KBPS: Final = 400  # for 12 subscriptions
_OUTBOX: Final = 16_000
_WARM_S: Final = 2.0
_MEASURED_S: Final = 6.0
_DRAIN_S: Final = 1.5
_COUNTS: Final = (30, 48, 66, 84, 102, 120)
_QUICK_COUNTS: Final = (48, 102)
_GUARANTEES: Final = {"none": '"none"', "50 %": "0.5", "full": '"full"'}
T = TypeVar("T")

_WAIT_S: Final = 60.0

ABOUT: Final = (
    f"Two nodes in processes of their own. At each, {_CHANNELS} channels with {_RATE_HZ} events/s "
    f"of {_PAYLOAD} bytes (QoS 0), as advertised; {_CLIENTS} clients of the first node, each "
    f"limited to {_CLIENT_KBPS} kbit/s and with {_OUTBOX // 1_000} KB for what waits, subscribe to "
    "more and more of them, half of them published at the other node. Guaranteed to 50 %, a "
    "subscription to the other node's events is taken where one of the two nodes can carry it. "
    "Discarded: of the events that admitted subscriptions should have got; refused: of all "
    "subscriptions; CPU: of the first node, of one core; bandwidth: of what the clients have."
)


@dataclass(frozen=True)
class Point:
    """What came of one run; all shares are from 0 to 1."""

    guarantee: str
    subscriptions: int
    discarded: float
    refused: float
    cpu: float
    bandwidth: float
    wanted: int
    lost: int


@dataclass
class Reading:
    """One subscription that was admitted, and what it got in the time that counts."""

    channel: str
    got: int = 0
    got_bytes: int = 0


class Counting:
    """Events in the time that counts."""

    def __init__(self) -> None:
        self.is_on = False
        self.published: dict[str, int] = {}


def run(options: Options) -> list[Table]:
    counts = _QUICK_COUNTS if options.is_quick else _COUNTS
    points: list[Point] = []
    for name in _GUARANTEES:
        for count in counts:
            progress(f"admission, live: {count} subscriptions, guarantee {name}")
            points.append(asyncio.run(_point(name, count)))
    if not options.is_quick:
        with tempfile.TemporaryDirectory() as folder:
            for path in draw(points, Path(folder)):
                drawn = path.read_bytes()
                (RESULTS / path.name.replace("admission", "admission-live")).write_bytes(drawn)
    return [_table(points)]


def _table(points: Sequence[Point]) -> Table:
    table = Table(
        "What admission is good for, with real nodes",
        ["guarantee", "subscriptions", "refused %", "events", "discarded", "discarded %", "CPU %",
         "bandwidth %"],
    )  # fmt: skip
    for each in points:
        table.add(
            each.guarantee,
            str(each.subscriptions),
            number(100 * each.refused, 1),
            number(each.wanted),
            number(each.lost),
            number(100 * each.discarded, 1),
            number(100 * each.cpu, 1),
            number(100 * each.bandwidth, 1),
        )
    return table


async def _point(guarantee: str, subscriptions: int) -> Point:
    counting = Counting()
    async with AsyncExitStack() as stack:
        urls, http_url, process_id = await stack.enter_async_context(_nodes(guarantee))
        near, far = [
            await stack.enter_async_context(connect(url, client_id=f"source-{place}"))
            for place, url in enumerate(urls)
        ]
        channels = [f"near/{each}" for each in range(_CHANNELS)]
        channels += [f"far/{each}" for each in range(_CHANNELS)]
        for channel in channels:
            source = near if channel.startswith("near") else far
            # A little more than is published: timers are not exact.
            await source.advertise(channel, rate_hz=1.02 * _RATE_HZ)
        await _known(http_url, 2 * _CHANNELS)
        readers = [
            await stack.enter_async_context(connect(urls[0], client_id=f"reader-{each}"))
            for each in range(_CLIENTS)
        ]
        readings = await _subscribe(stack, readers, channels, subscriptions)
        sources = [
            asyncio.create_task(_publish(source, some, counting))
            for source, some in ((near, channels[:_CHANNELS]), (far, channels[_CHANNELS:]))
        ]
        stack.push_async_callback(_end, sources)
        await asyncio.sleep(_WARM_S)
        before_s, began_s = cpu_s([process_id]), perf_counter()
        counting.is_on = True
        await asyncio.sleep(_MEASURED_S)
        counting.is_on = False
        spent_s = perf_counter() - began_s
        used_s = cpu_s([process_id]) - before_s
        await asyncio.sleep(_DRAIN_S)
        return _found(guarantee, subscriptions, readings, counting, used_s / spent_s, spent_s)


def _found(  # noqa: PLR0913, PLR0917
    guarantee: str,
    subscriptions: int,
    readings: list[Reading],
    counting: Counting,
    cpu: float,
    spent_s: float,
) -> Point:
    wanted = sum(counting.published.get(each.channel, 0) for each in readings)
    got = sum(each.got for each in readings)
    sent_bps = sum(each.got_bytes for each in readings) * 8 / spent_s
    return Point(
        guarantee=guarantee,
        subscriptions=subscriptions,
        discarded=(wanted - got) / max(wanted, 1),
        refused=1 - len(readings) / subscriptions,
        cpu=cpu,
        bandwidth=sent_bps / (_CLIENTS * _CLIENT_KBPS * 1_000),
        wanted=wanted,
        lost=wanted - got,
    )


async def _subscribe(
    stack: AsyncExitStack, readers: list[Session], channels: list[str], count: int
) -> list[Reading]:
    """One after the other, by turns; gives those that were admitted."""
    readings: list[Reading] = []
    tasks: list[asyncio.Task[None]] = []
    for place in range(count):
        reader, turn = readers[place % len(readers)], place // len(readers)
        # By turns of this node and of the other.
        channel = channels[turn // 2 + _CHANNELS * (turn % 2)]
        try:
            events = await stack.enter_async_context(reader.subscribe(channel, qos=0))
        except AdmissionRefusedError:
            continue
        reading = Reading(channel)
        readings.append(reading)
        tasks.append(asyncio.create_task(_read(events, reading)))
    stack.push_async_callback(_end, tasks)
    return readings


async def _read(events: Subscription, reading: Reading) -> None:
    async for event in events:
        if event.payload.startswith(b"counts"):
            reading.got += 1
            reading.got_bytes += len(event.payload) + len(event.channel) + 6


async def _publish(source: Session, channels: list[str], counting: Counting) -> None:
    """Evenly: each channel in its turn."""
    apart_s = 1 / (_RATE_HZ * len(channels))
    due_s = perf_counter()
    while True:
        for channel in channels:
            is_counted = counting.is_on
            payload = (b"counts" if is_counted else b"before").ljust(_PAYLOAD, b".")
            await source.publish(channel, payload, qos=0)
            if is_counted:
                counting.published[channel] = counting.published.get(channel, 0) + 1
            due_s += apart_s
            await asyncio.sleep(max(due_s - perf_counter(), 0))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _nodes(guarantee: str) -> AsyncIterator[tuple[list[str], str, int]]:
    """Where to connect at both nodes; where to ask the first, and its process."""
    ports = free_ports(6)
    with tempfile.TemporaryDirectory(prefix="admission-") as folder:
        commands = [
            _command(Path(folder), place, ports, _GUARANTEES[guarantee]) for place in range(2)
        ]
        with (
            started(commands[0], os.environ) as first,
            started(commands[1], os.environ),
        ):
            urls = [f"mqtt://{_HOST}:{ports[3 * place]}" for place in range(2)]
            for place in range(2):
                await _linked(f"http://{_HOST}:{ports[3 * place + 1]}")
            yield urls, f"http://{_HOST}:{ports[1]}", first.pid


def _command(folder: Path, place: int, ports: list[int], guarantee: str) -> list[str]:
    mqtt, http, link = ports[3 * place : 3 * place + 3]
    neighbours = f'neighbours = "{_HOST}:{ports[2]}"' if place else ""
    book = folder / "policies.toml"
    book.write_text(f'client_bandwidth = "{_CLIENT_KBPS} kbit/s"\n')
    file = folder / f"{place}.toml"
    file.write_text(f"""
[node]
name = "node-{place}"
[limits]
outbox_bytes = {_OUTBOX}
[net]
listen = "{_HOST}:{link}"
{neighbours}
[policies]
file = "{book}"
[admission]
mode = "enforce"
guarantee = {guarantee}
event_bytes = {_EVENT_BYTES}
""")
    return [
        sys.executable, "-m", "accord", "up", "--config", str(file), "--mqtt", f"{_HOST}:{mqtt}",
        "--http", f"{_HOST}:{http}", "--websocket", "", "--data", "", "--no-demo", "--no-pipeline",
    ]  # fmt: skip


def _ask(url: str, request: Request[T]) -> T:
    return HttpClient(url).call(request)


async def _linked(http_url: str) -> None:
    """Until a node knows the other."""
    until_s = perf_counter() + _WAIT_S
    while perf_counter() < until_s:
        try:
            status = await asyncio.to_thread(_ask, http_url, GetNet())
            if sum(each.is_reachable for each in status.nodes) == 2:
                return
        except (AccordError, ConnectionFailedError):
            pass
        await asyncio.sleep(0.05)
    raise AssertionError("the nodes do not find each other")


async def _known(http_url: str, advertisements: int) -> None:
    """Until a node knows what is advertised at both."""
    until_s = perf_counter() + _WAIT_S
    while perf_counter() < until_s:
        status = await asyncio.to_thread(_ask, http_url, GetAdmission())
        if status.advertisements == advertisements:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not all advertisements get there")
