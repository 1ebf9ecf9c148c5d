"""Whether a limit holds, and what an alarm waits for meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final

from accord.client.session import Session, connect
from accord.client.subscription import Subscription
from benchmarks.options import Options, progress
from benchmarks.ports import free_port
from benchmarks.processes import started
from benchmarks.report import Table, number

_HOST: Final = "127.0.0.1"
_LIMIT_KBPS: Final = 300
_WINDOW_S: Final = 30.0
_IMAGE: Final = bytes(911_000)
_IMAGE_EVERY_S: Final = 20.0
_ALARM_BYTES: Final = 41
_ALARM_EVERY_S: Final = 0.1
_START_S: Final = 60.0
_MEASURED_S: Final = 100.0
_QUICK_S: Final = 35.0
_STRATEGIES: Final = ("weighted fair", "strict")
_LIMITS: Final = {
    "one client": f'[[limits]]\nclient = "patrol-1"\nbandwidth = "{_LIMIT_KBPS} kbit/s"\n',
    "the node": f'bandwidth = "{_LIMIT_KBPS} kbit/s"\n',
}

ABOUT: Final = (
    f"One client of a node, with a limit of {_LIMIT_KBPS} kbit/s for the client or for the node. "
    f"It gets an image of {len(_IMAGE) // 1_000} KB every {_IMAGE_EVERY_S:.0f} s, with importance "
    f"3, which is more than the limit carries, and an alarm of {_ALARM_BYTES} B every "
    f"{1_000 * _ALARM_EVERY_S:.0f} ms, with importance 6 (QoS 0). Waits are from before an alarm "
    "is published until it has been received; the most of any 30 s is what the client has "
    "received, of what the limit allows in 30 s."
)


class Received:
    """Of one client: when how many bytes came, and how long alarms took."""

    def __init__(self) -> None:
        self.waits_ms: list[float] = []
        self.images = 0
        self._came: list[tuple[float, int]] = []

    async def read(self, events: Subscription) -> None:
        async for event in events:
            now_s = perf_counter()
            self._came.append((now_s, len(event.payload) + len(event.channel) + 6))
            if len(event.payload) == _ALARM_BYTES:
                self.waits_ms.append(1_000 * (now_s - float(event.payload)))
            else:
                self.images += 1

    def most_in_window(self) -> int:
        most = held = first = 0
        for at_s, size in self._came:
            held += size
            while self._came[first][0] <= at_s - _WINDOW_S:
                held -= self._came[first][1]
                first += 1
            most = max(most, held)
        return most


def run(options: Options) -> list[Table]:
    measured_s = _QUICK_S if options.is_quick else _MEASURED_S
    table = Table(
        "What an alarm waits for at a limit, in ms",
        ["limit of", "strategy", "alarms", "p50", "p99", "most", "images", "most of any 30 s, %"],
    )
    for limit in _LIMITS:
        for strategy in _STRATEGIES:
            progress(f"limits: of {limit}, {strategy}")
            received = asyncio.run(_receive(limit, strategy, measured_s))
            table.add(
                limit,
                strategy,
                number(len(received.waits_ms)),
                *(number(each, 1) for each in _figures(received.waits_ms)),
                str(received.images),
                number(received.most_in_window() * 8 / (_WINDOW_S * _LIMIT_KBPS * 10), 1),
            )
    return [table]


def _figures(waits_ms: Sequence[float]) -> tuple[float, float, float]:
    return median(waits_ms), quantiles(waits_ms, n=100)[98], max(waits_ms)


async def _receive(limit: str, strategy: str, measured_s: float) -> Received:
    port = free_port()
    received = Received()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="limits-")))
        stack.enter_context(started(_command(folder, port, limit, strategy), os.environ))
        patrol, source = [
            await stack.enter_async_context(
                connect(f"mqtt://{_HOST}:{port}", client_id=client, wait_s=_START_S)
            )
            for client in ("patrol-1", "source")
        ]
        events = await stack.enter_async_context(patrol.subscribe("#", qos=0))
        reader = asyncio.create_task(received.read(events))
        senders = [
            asyncio.create_task(_send_images(source)),
            asyncio.create_task(_send_alarms(source)),
        ]
        await asyncio.sleep(measured_s)
        for task in senders:
            task.cancel()
        await asyncio.sleep(1)
        reader.cancel()
        await asyncio.gather(*senders, reader, return_exceptions=True)
    return received


async def _send_images(source: Session) -> None:
    while True:
        await source.publish("images", _IMAGE, qos=0)
        await asyncio.sleep(_IMAGE_EVERY_S)


async def _send_alarms(source: Session) -> None:
    due_s = perf_counter()
    while True:
        due_s += _ALARM_EVERY_S
        await asyncio.sleep(max(due_s - perf_counter(), 0))
        await source.publish("alarms", f"{perf_counter():.9f}".rjust(_ALARM_BYTES), qos=0)


def _command(folder: Path, port: int, limit: str, strategy: str) -> list[str]:
    book = folder / "policies.toml"
    alarms = '[[policies]]\nname = "Alarms"\nchannel = "alarms"\nimportance = 6\n'
    book.write_text(f'strategy = "{strategy}"\n{_LIMITS[limit]}{alarms}')
    file = folder / "accord.toml"
    file.write_text(f'[policies]\nfile = "{book}"\n')
    return [
        sys.executable, "-m", "accord", "up", "--config", str(file), "--mqtt", f"{_HOST}:{port}",
        "--http", "", "--websocket", "", "--data", "", "--no-demo", "--no-pipeline",
    ]  # fmt: skip
