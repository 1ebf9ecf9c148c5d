"""Who takes part: six publishers, five channels, about 1 Mbit/s; and what they say.

What a source says is a function of the event's number. Images are made before the curtain rises:
a camera has as many as fit on its film, and begins anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from accord.apps.targeting.images import Camera
from accord.core.model.values import Value

IMAGERY: Final = "uav/imagery"
CAS_IMAGE: Final = "cas/image"
REPORT: Final = "patrol/report"
TASKING: Final = "uav/tasking"
TRACKING: Final = "blue-force/tracking"
CHANNELS: Final = (TRACKING, TASKING, REPORT, CAS_IMAGE, IMAGERY)
RECEIVER: Final = "DISPLAY"
REPORT_BYTES: Final = 10_000
FILM: Final = 20

_FASTEST_S: Final = 1.4  # between two images of a camera

_HOME: Final = (46.69, 7.87)
_SIGHTINGS: Final = (
    "two trucks at the bridge",
    "smoke above the quarry",
    "nothing on the ridge",
    "civilians on the north road",
    "a convoy of eight, heading east",
)


@dataclass(frozen=True)
class Sample:
    """An event as it is to be published."""

    attributes: dict[str, Value]
    payload: bytes
    key: str | None = None


@dataclass(frozen=True)
class Source:
    """A client that publishes on one channel, every `period_s`, from `offset_s` on."""

    client: str
    channel: str
    period_s: float
    offset_s: float
    sample: Callable[[int], Sample]


def make_cast(film: int = FILM) -> list[Source]:
    """All sources; painting the images takes a few seconds."""
    cameras = {
        "UAV-1": Camera("UAV-1", seed=1, radius=420),
        "UAV-2": Camera("UAV-2", seed=2, radius=330),
        "CAS-1": Camera("CAS-1", seed=3, radius=240, zoom=1.6),
    }
    films = {name: _Film(camera, film) for name, camera in cameras.items()}
    return [
        Source("UAV-1", IMAGERY, 1.8, 0.0, films["UAV-1"]),
        Source("UAV-2", IMAGERY, 1.8, 0.9, films["UAV-2"]),
        Source("CAS-1", CAS_IMAGE, _FASTEST_S, 0.5, films["CAS-1"]),
        Source("PATROL-1", REPORT, 2.0, 0.3, _Report(1)),
        Source("PATROL-2", REPORT, 2.0, 1.3, _Report(2)),
        Source("C2", TASKING, 2.5, 0.7, _tasking),
        Source("PATROL-1", TRACKING, 1.5, 0.2, _Track(1)),
        Source("PATROL-2", TRACKING, 1.5, 0.9, _Track(2)),
    ]


def film_for(seconds: float) -> int:
    """How many images a camera needs in that time, unless it shows some of them again."""
    return min(FILM, math.ceil(seconds / _FASTEST_S) + 1)


class _Film:
    def __init__(self, camera: Camera, film: int) -> None:
        self._name = camera.name
        self._views = [camera.view(number) for number in range(film)]

    def __call__(self, number: int) -> Sample:
        view = self._views[number % len(self._views)]
        attributes: dict[str, Value] = {
            "platform": self._name.partition("-")[0],
            "lat": round(view.lat, 5),
            "lon": round(view.lon, 5),
            "altitude_m": view.altitude_m,
        }
        return Sample(attributes, view.jpeg)


class _Report:
    """What a patrol sees, with all it has seen lately."""

    def __init__(self, patrol: int) -> None:
        self._patrol = patrol

    def __call__(self, number: int) -> Sample:
        seen = _SIGHTINGS[(3 * number + self._patrol) % len(_SIGHTINGS)]
        urgent = seen.startswith("a convoy")
        entries = [
            {"line": line, "time_s": 2 * (number - line), "seen": _SIGHTINGS[line % 5]}
            for line in range(max(0, number - 20), number + 1)
        ]
        report = {"patrol": self._patrol, "report": number, "seen": seen, "log": entries}
        priority = "flash" if urgent else "routine"
        return Sample({"patrol": self._patrol, "priority": priority}, _document(report))


class _Track:
    """Where the men and vehicles of a patrol are; only the latest counts."""

    def __init__(self, patrol: int) -> None:
        self._patrol = patrol

    def __call__(self, number: int) -> Sample:
        angle = number / 20 + self._patrol
        lat = round(_HOME[0] + 0.004 * math.cos(angle), 5)
        lon = round(_HOME[1] + 0.006 * math.sin(angle), 5)
        members = [
            {"unit": f"{self._patrol}-{unit}", "lat": lat + unit / 1e5, "lon": lon - unit / 1e5}
            for unit in range(40)
        ]
        attributes: dict[str, Value] = {"patrol": self._patrol, "lat": lat, "lon": lon}
        return Sample(attributes, _document({"units": members}), key=f"patrol-{self._patrol}")


def _tasking(number: int) -> Sample:
    aircraft = f"UAV-{number % 2 + 1}"
    legs = [
        {"leg": leg, "lat": _HOME[0] + leg / 1e3, "lon": _HOME[1] - leg / 1e3, "altitude_m": 320}
        for leg in range(60)
    ]
    return Sample({"aircraft": aircraft}, _document({"aircraft": aircraft, "legs": legs}))


def _document(fields: dict[str, object]) -> bytes:
    """JSON of exactly the size that the scenario has: spaces make up for what is missing."""
    text = json.dumps(fields).encode()
    assert len(text) <= REPORT_BYTES
    return text.ljust(REPORT_BYTES)
