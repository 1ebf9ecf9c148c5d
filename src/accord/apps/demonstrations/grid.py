"""A power grid: substations, crews and dispatchers publish to a control room over a thin link.

Seven publishers, eight channels, about 1.2 Mbit/s.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from accord.apps.demonstrations.equipment import (
    CAUSES,
    CREWS,
    FEEDERS,
    SUBSTATIONS,
    TRANSFORMERS,
    Crew,
    Feeder,
    Transformer,
)
from accord.apps.demonstrations.images import Camera, View
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

ALARM: Final = "grid/transformer/alarm"
ORDER: Final = "grid/switching/order"
REPORT: Final = "grid/outage/report"
POSITION: Final = "crew/position"
FEEDER: Final = "grid/feeder/load"
CAMERAS: Final = tuple(f"grid/camera/{name}" for name in SUBSTATIONS)
LIMIT_KBPS: Final = 800
STORM: Final = "cedar"

_ALARMS: Final = (
    ("minor", "cooling fan stopped"),
    ("major", "tap changer blocked"),
    ("minor", "oil level low"),
    ("critical", "winding temperature high"),
)


def make_sources(seconds: float) -> list[DemoSource]:
    sources = [
        DemoSource("OPS", ORDER, 2.5, 0.7, _order),
        DemoSource("CALLS", REPORT, 2.0, 0.4, _report),
    ]
    for number, crew in enumerate(CREWS):
        locate = partial(_position, crew)
        sources.append(DemoSource(crew.name.upper(), POSITION, 1.0, 0.2 + number / 2, locate))
    for number, name in enumerate(SUBSTATIONS):
        client, feeder = name.upper(), FEEDERS[number]
        alarm, measure = partial(_alarm, TRANSFORMERS[number]), partial(_measurement, feeder)
        camera = Camera(client, seed=4 + number, radius=240 + 60 * number, zoom=1.3)
        show = partial(_describe, name)
        sources += [
            DemoSource(client, ALARM, 2.0, 0.1 + number * 0.6, alarm),
            DemoSource(client, FEEDER, 0.5, number * 0.15, measure),
            image_source(
                camera, CAMERAS[number], 1.2, number * 0.4, seconds=seconds, describe=show
            ),
        ]
    return sources


GRID: Final = DemoScenario(
    receiver="CONTROL-ROOM",
    channels=(ALARM, ORDER, REPORT, FEEDER, POSITION, *CAMERAS),
    make_sources=make_sources,
    phases=(
        PhasePlan(
            "1 · no limit",
            "Three substations, two crews, dispatchers and a call centre publish; the control room "
            "receives everything. Nothing limits what the node sends.",
            (initial_policies("grid"),),
        ),
        PhasePlan(
            f"2 · {LIMIT_KBPS} kbit/s",
            f"The link to the control room carries {LIMIT_KBPS} kbit/s, less than is published. "
            "Alarms and orders go first. Images come last: GeneralSurv makes them smaller, and "
            "drops those older than 5 s. A new measurement or position replaces a waiting one.",
            (limit_bandwidth(LIMIT_KBPS),),
        ),
        PhasePlan(
            "3 · storm",
            "A storm reaches substation Cedar. A policy with the predicate substation = 'cedar' "
            "makes its camera important (2 → 5), and its images whole (FullImageDrop). Nothing "
            "else changes.",
            (
                put_policy(
                    "StormCamera",
                    channel="grid/camera/+",
                    where=f"substation = '{STORM}'",
                    importance=5,
                    preferences="FullImageDrop",
                ),
            ),
        ),
    ),
)


def _alarm(transformer: Transformer, number: int) -> Sample:
    severity, text = _ALARMS[(number + len(transformer.substation)) % len(_ALARMS)]
    attributes = transformer.measure(2.0 * number, _noise(number))
    return Sample(
        {**attributes, "severity": severity},
        json_payload({"alarm": text, "raised": number}, 300),
    )


def _measurement(feeder: Feeder, number: int) -> Sample:
    attributes = feeder.measure(0.5 * number, _noise(number))
    currents = [round(94 + 12 * _noise(number + phase), 1) for phase in range(3)]
    payload = json_payload({"current_a": currents, "frequency_hz": 50.0}, 600)
    return Sample(attributes, payload, key=feeder.name)


def _position(crew: Crew, number: int) -> Sample:
    attributes = crew.locate(1.0 * number, _noise(number))
    return Sample(attributes, json_payload({"fix": number}, 500), key=crew.name)


def _describe(substation: str, view: View) -> dict[str, Value]:
    return {"substation": substation, "lat": round(view.lat, 5), "lon": round(view.lon, 5)}


def _order(number: int) -> Sample:
    feeder = FEEDERS[number % len(FEEDERS)]
    action = "open" if number % 2 else "close"
    steps = [{"step": step, "switch": f"{feeder.name}/S{step}", "do": action} for step in range(8)]
    return Sample(
        {"feeder": feeder.name, "substation": feeder.substation, "action": action},
        json_payload({"order": number, "steps": steps}, 4_000),
    )


def _report(number: int) -> Sample:
    feeder = FEEDERS[number % len(FEEDERS)]
    cause, text = CAUSES[number % len(CAUSES)]
    calls = [{"call": call, "street": f"Street {call % 17}", "seen": text} for call in range(90)]
    return Sample(
        {
            "feeder": feeder.name,
            "substation": feeder.substation,
            "cause": cause,
            "customers": 40 + 37 * number % 900,
        },
        json_payload({"report": number, "calls": calls}, 10_000),
    )


def _noise(number: int) -> float:
    return math.sin(12.9898 * number)
