"""Time-critical targeting: the scenario of the paper on managed information.

Six publishers, five channels, about 1 Mbit/s.
"""

from __future__ import annotations

import math
from typing import Final

from accord.apps.demonstrations.images import HOME, Camera, View
from accord.apps.demonstrations.scenario import (
    DemoScenario,
    DemoSource,
    PhasePlan,
    Sample,
    image_source,
    initial_policies,
    json_payload,
    limit_bandwidth,
    put_policy,
)
from accord.core.model.values import Value

IMAGERY: Final = "uav/imagery"
CAS_IMAGE: Final = "cas/image"
REPORT: Final = "patrol/report"
TASKING: Final = "uav/tasking"
TRACKING: Final = "blue-force/tracking"
REPORT_BYTES: Final = 10_000
LIMIT_KBPS: Final = 800

_SIGHTINGS: Final = (
    "two trucks at the bridge",
    "smoke above the quarry",
    "nothing on the ridge",
    "civilians on the north road",
    "a convoy of eight, heading east",
)


def make_sources(seconds: float) -> list[DemoSource]:
    def images(camera: Camera, channel: str, period_s: float, offset_s: float) -> DemoSource:
        def describe(view: View) -> dict[str, Value]:
            return {
                "platform": camera.name.partition("-")[0],
                "lat": round(view.lat, 5),
                "lon": round(view.lon, 5),
                "altitude_m": view.altitude_m,
            }

        return image_source(camera, channel, period_s, offset_s, seconds=seconds, describe=describe)

    return [
        images(Camera("UAV-1", seed=1, radius=420), IMAGERY, 1.8, 0.0),
        images(Camera("UAV-2", seed=2, radius=330), IMAGERY, 1.8, 0.9),
        images(Camera("CAS-1", seed=3, radius=240, zoom=1.6), CAS_IMAGE, 1.4, 0.5),
        DemoSource("PATROL-1", REPORT, 2.0, 0.3, _Report(1)),
        DemoSource("PATROL-2", REPORT, 2.0, 1.3, _Report(2)),
        DemoSource("C2", TASKING, 2.5, 0.7, _tasking),
        DemoSource("PATROL-1", TRACKING, 1.5, 0.2, _Track(1)),
        DemoSource("PATROL-2", TRACKING, 1.5, 0.9, _Track(2)),
    ]


TARGETING: Final = DemoScenario(
    receiver="DISPLAY",
    channels=(TRACKING, TASKING, REPORT, CAS_IMAGE, IMAGERY),
    make_sources=make_sources,
    phases=(
        PhasePlan(
            "1 · no limit",
            "Aircraft, patrols and command publish; one display receives everything. Nothing "
            "limits what the node sends.",
            (initial_policies("targeting"),),
        ),
        PhasePlan(
            f"2 · {LIMIT_KBPS} kbit/s",
            f"The node may send {LIMIT_KBPS} kbit/s, less than is published. Images are wanted "
            "whole, and within 5 s.",
            (limit_bandwidth(LIMIT_KBPS),),
        ),
        PhasePlan(
            "3a · preferences",
            "Who receives uav/imagery now prefers GeneralSurv: smaller images rather than none, "
            "within 5 s. Nothing else changes.",
            (
                put_policy(
                    "UASImgSub", operation="subscribe", channel=IMAGERY, preferences="GeneralSurv"
                ),
            ),
        ),
        PhasePlan(
            "3b · importances",
            "The target is found. What aircraft see becomes important (2 → 6), and what PATROL-1 "
            "reports (4 → 7); images of close air support don't matter now (3 → 1).",
            (
                put_policy("AllUAS", operation="publish", client="UAV-*", importance=6),
                put_policy(
                    "CASImage", channel=CAS_IMAGE, importance=1, preferences="FullImageDrop"
                ),
                put_policy(
                    "Patrol-1-Report",
                    operation="publish",
                    channel=REPORT,
                    client="PATROL-1",
                    importance=7,
                ),
            ),
        ),
    ),
)


class _Report:
    """Report of a patrol: what it sees, with its recent observations."""

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
        return Sample(
            {"patrol": self._patrol, "priority": priority}, json_payload(report, REPORT_BYTES)
        )


class _Track:
    """Position of the men and vehicles of a patrol; only the latest counts."""

    def __init__(self, patrol: int) -> None:
        self._patrol = patrol

    def __call__(self, number: int) -> Sample:
        angle = number / 20 + self._patrol
        lat = round(HOME[0] + 0.004 * math.cos(angle), 5)
        lon = round(HOME[1] + 0.006 * math.sin(angle), 5)
        members = [
            {"unit": f"{self._patrol}-{unit}", "lat": lat + unit / 1e5, "lon": lon - unit / 1e5}
            for unit in range(40)
        ]
        attributes: dict[str, Value] = {"patrol": self._patrol, "lat": lat, "lon": lon}
        return Sample(
            attributes, json_payload({"units": members}, REPORT_BYTES), key=f"patrol-{self._patrol}"
        )


def _tasking(number: int) -> Sample:
    aircraft = f"UAV-{number % 2 + 1}"
    legs = [
        {"leg": leg, "lat": HOME[0] + leg / 1e3, "lon": HOME[1] - leg / 1e3, "altitude_m": 320}
        for leg in range(60)
    ]
    return Sample(
        {"aircraft": aircraft}, json_payload({"aircraft": aircraft, "legs": legs}, REPORT_BYTES)
    )
