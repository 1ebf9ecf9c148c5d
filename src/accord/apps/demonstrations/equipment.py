"""The power grid of the demonstrations: three substations, what they feed, field crews.

Each measurement is a function of time and of noise between -1 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from accord.core.model.values import Value

_HOME: Final = (46.69, 7.87)
_METRES_PER_DEGREE: Final = 111_320.0


@dataclass(frozen=True)
class Feeder:
    """A medium-voltage line out of a substation; its load swings around a mean."""

    name: str
    substation: str
    mean_mw: float
    swing_mw: float
    limit_mw: float
    period_s: float

    def measure(self, time_s: float, noise: float) -> dict[str, Value]:
        swing = _swing(time_s, self.period_s)
        load_mw = self.mean_mw + self.swing_mw * swing + 0.2 * noise
        share = load_mw / self.limit_mw
        return {
            "feeder": self.name,
            "load_mw": round(load_mw, 1),
            "limit_mw": self.limit_mw,
            "voltage_kv": round(20.6 - share + 0.1 * noise, 2),
            "temperature_c": round(22 + 34 * share),
            "substation": self.substation,
            "status": "overload" if share > 1 else "high" if share > 0.8 else "normal",
        }


@dataclass(frozen=True)
class Transformer:
    """A transformer whose oil warms up and cools down with the load of its substation."""

    name: str
    substation: str
    mean_c: float
    period_s: float

    def measure(self, time_s: float, noise: float) -> dict[str, Value]:
        swing = _swing(time_s, self.period_s)
        oil_c = round(self.mean_c + 18 * swing + 2 * noise)
        return {
            "transformer": self.name,
            "oil_c": oil_c,
            "load_pct": round(62 + 30 * swing + 3 * noise),
            "substation": self.substation,
            "status": "hot" if oil_c > 80 else "normal",
        }


@dataclass(frozen=True)
class Crew:
    """A vehicle in the field, on a round trip."""

    name: str
    radius_m: float
    speed_kmh: float

    def locate(self, time_s: float, noise: float) -> dict[str, Value]:
        is_driving = math.sin(time_s / 40 + self.radius_m / 1_000) > -0.4
        angle = self.speed_kmh / 3.6 * time_s / self.radius_m
        north_m, east_m = (self.radius_m * turn(angle) for turn in (math.cos, math.sin))
        lat, lon = _HOME
        return {
            "crew": self.name,
            "lat": round(lat + north_m / _METRES_PER_DEGREE, 5),
            "lon": round(lon + east_m / _METRES_PER_DEGREE / math.cos(math.radians(lat)), 5),
            "speed_kmh": round(self.speed_kmh + 6 * noise) if is_driving else 0,
            "status": "driving" if is_driving else "working",
        }


def _swing(time_s: float, period_s: float) -> float:
    return math.sin(2 * math.pi * time_s / period_s)


SUBSTATIONS: Final = ("alder", "birch", "cedar")
FEEDERS: Final = (
    Feeder("F-12", "alder", mean_mw=2.4, swing_mw=1.2, limit_mw=4.0, period_s=61),
    Feeder("F-21", "birch", mean_mw=3.8, swing_mw=1.6, limit_mw=5.0, period_s=74),
    Feeder("F-34", "cedar", mean_mw=4.9, swing_mw=1.6, limit_mw=6.0, period_s=89),
)
TRANSFORMERS: Final = (
    Transformer("T-1", "alder", mean_c=56, period_s=140),
    Transformer("T-2", "birch", mean_c=61, period_s=170),
    Transformer("T-3", "cedar", mean_c=70, period_s=200),
)
CREWS: Final = (
    Crew("crew-1", radius_m=1_500, speed_kmh=44),
    Crew("crew-2", radius_m=2_600, speed_kmh=58),
)
CAUSES: Final = (
    ("tree", "tree on the line"),
    ("cable", "cable damaged by an excavator"),
    ("animal", "short circuit by a marten"),
    ("lightning", "arrester tripped by lightning"),
    ("fuse", "fuse blown"),
)
