"""A demonstration stream: something to look at right after a node has started.

Three unmanned aircraft circle over the Bernese Oberland, climb and sink; patrols report what they
see, with XML metadata; weather stations measure: five events a second. The stream is a function of
its seed and of how often it was asked; `run_demo` publishes it as any client would.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from accord.client.errors import ClientError
from accord.client.session import Session, connect
from accord.client.transport import Transport
from accord.core.model.values import Value

SEED: Final = 5
PERIOD_S: Final = 0.2
TRACK_DEADLINE_MS: Final = 15_000

_HOME: Final = (46.69, 7.87)
_METRES_PER_DEGREE: Final = 111_320.0
_PRIORITIES: Final = ("routine", "routine", "routine", "priority", "immediate", "flash")
_SIGHTINGS: Final = (
    ("convoy", "vehicles on the pass road"),
    ("hikers", "people on the ridge"),
    ("cattle", "animals on the track"),
    ("rockfall", "blocks on the road"),
    ("smoke", "columns of smoke above the trees"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An event of the stream, as it is to be published."""

    channel: str
    attributes: dict[str, Value]
    payload: str = ""
    metadata: str | None = None
    key: str | None = None
    deadline_ms: int | None = None
    qos: int = 0


class Aircraft:
    """Flies circles; its altitude swings between 80 and 600 m, its battery between full and low."""

    def __init__(self, name: str, *, radius_m: float, speed_ms: float, phase: float) -> None:
        self.name = name
        self._radius_m = radius_m
        self._speed_ms = speed_ms
        self._angle = phase
        self._swing = 2 * phase
        self._battery = 100.0 - 20 * phase

    def fly(self, random: random.Random, elapsed_s: float) -> Sample:
        speed_ms = self._speed_ms * random.uniform(0.92, 1.08)
        self._angle += speed_ms * elapsed_s / self._radius_m
        self._swing += elapsed_s * random.uniform(0.06, 0.1)
        altitude_m = round(340 + 255 * math.sin(self._swing) + random.uniform(-5, 5))
        self._battery -= elapsed_s * 0.15
        if self._battery < 15:
            self._battery = 100.0
        north_m, east_m = (self._radius_m * turn(self._angle) for turn in (math.cos, math.sin))
        lat = _HOME[0] + north_m / _METRES_PER_DEGREE
        lon = _HOME[1] + east_m / _METRES_PER_DEGREE / math.cos(math.radians(_HOME[0]))
        heading = round(math.degrees(self._angle) + 90) % 360
        return Sample(
            channel=f"demo/uav/{self.name}",
            attributes={
                "platform": "UAV",
                "altitude_m": altitude_m,
                "speed_kmh": round(speed_ms * 3.6),
                "heading_deg": heading,
                "battery_pct": round(self._battery),
            },
            payload=json.dumps({"lat": round(lat, 5), "lon": round(lon, 5)}),
            key=self.name,
            deadline_ms=TRACK_DEADLINE_MS,
        )


class Demonstration:
    """An endless iterator of samples."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a demonstration has no secrets
        self._samples = self._stream()

    def __iter__(self) -> Iterator[Sample]:
        return self._samples

    def _stream(self) -> Iterator[Sample]:
        aircraft = (
            Aircraft("heron", radius_m=900, speed_ms=24, phase=0.3),
            Aircraft("kite", radius_m=1_500, speed_ms=31, phase=1.4),
            Aircraft("osprey", radius_m=2_200, speed_ms=38, phase=2.5),
        )
        number = 0
        while True:
            for each in aircraft:
                yield each.fly(self._random, 5 * PERIOD_S)
            number += 1
            yield self._report(number)
            yield self._weather(number)

    def _report(self, number: int) -> Sample:
        patrol = self._random.randint(1, 4)
        kind, words = self._random.choice(_SIGHTINGS)
        priority = self._random.choice(_PRIORITIES)
        seen = self._random.randint(2, 12)
        return Sample(
            channel="demo/report",
            attributes={"priority": priority, "patrol": patrol, "sighting": kind},
            payload=f"Patrol {patrol}: {seen} {words}",
            metadata=f'<report number="{number}"><{kind}>{seen}</{kind}></report>',
            qos=1,
        )

    def _weather(self, number: int) -> Sample:
        station = ("interlaken", "grindelwald", "schilthorn")[number % 3]
        height_m = (568, 1_034, 2_970)[number % 3]
        hour = 2 * math.pi * number / 600
        return Sample(
            channel=f"demo/weather/{station}",
            attributes={
                "temperature_c": round(19 - height_m / 154 + 4 * math.sin(hour), 1),
                "wind_kmh": round(8 + height_m / 120 + self._random.uniform(0, 12)),
                "is_raining": math.sin(3 * hour) > 0.6,
            },
            key=station,
        )


async def run_demo(
    url: str,
    *,
    seed: int = SEED,
    transport: Transport | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Publish the demonstration until cancelled; ends in silence where the server says no."""
    try:
        async with connect(url, transport=transport, session_expiry_s=0) as session:
            for sample in Demonstration(seed):
                await _publish(session, sample)
                await sleep(PERIOD_S)
    except ClientError:
        return


async def _publish(session: Session, sample: Sample) -> None:
    await session.publish(
        sample.channel,
        sample.payload,
        qos=sample.qos,
        key=sample.key,
        deadline_ms=sample.deadline_ms,
        metadata=sample.metadata,
        attributes=sample.attributes,
    )
