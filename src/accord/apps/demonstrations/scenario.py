"""A demonstration as data: channels, sources with rate and size, policies, phases.

What a source publishes is a function of the event's number, so that every run offers the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from typing import Final

from accord.apps.demonstrations.images import Camera, View
from accord.core.model.values import Value
from accord.operations.policies import PatchPolicies, PutPolicies, PutPolicy

MAX_IMAGES: Final = 20  # of one camera; after the last one it starts over


@dataclass(frozen=True)
class Sample:
    """An event to be published."""

    attributes: dict[str, Value]
    payload: bytes
    key: str | None = None


@dataclass(frozen=True)
class DemoSource:
    """A client that publishes on one channel, every `period_s`, from `offset_s` on."""

    client: str
    channel: str
    period_s: float
    offset_s: float
    sample: Callable[[int], Sample]


PolicyChange = PutPolicies | PutPolicy | PatchPolicies


@dataclass(frozen=True)
class PhasePlan:
    """A phase: what changes when it begins, and a text that announces it."""

    name: str
    text: str
    changes: tuple[PolicyChange, ...]


@dataclass(frozen=True)
class DemoScenario:
    """A scenario; `receiver` subscribes to all channels, and tables list them in this order.

    `make_sources` gets the duration of the demonstration in seconds; it paints the images, which
    takes a few seconds.
    """

    receiver: str
    channels: tuple[str, ...]
    phases: tuple[PhasePlan, ...]
    make_sources: Callable[[float], list[DemoSource]]


def initial_policies(name: str) -> PutPolicies:
    """The initial policies of a scenario."""
    file = files("accord.apps.demonstrations").joinpath(f"{name}.toml")
    return PutPolicies(toml=file.read_text("utf-8"))


def put_policy(name: str, **fields: object) -> PutPolicy:
    return PutPolicy(name=name, policy=fields)


def limit_bandwidth(kbps: int) -> PatchPolicies:
    return PatchPolicies(settings={"bandwidth": f"{kbps} kbit/s"})


def image_source(  # noqa: PLR0913
    camera: Camera,
    channel: str,
    period_s: float,
    offset_s: float,
    *,
    seconds: float,
    describe: Callable[[View], dict[str, Value]],
) -> DemoSource:
    """A camera that publishes for `seconds`; paints no more images than it shows in that time."""
    count = min(MAX_IMAGES, ceil(seconds / period_s) + 1)
    views = [camera.view(number) for number in range(count)]

    def sample(number: int) -> Sample:
        view = views[number % count]
        return Sample(describe(view), view.jpeg)

    return DemoSource(camera.name, channel, period_s, offset_s, sample)


def json_payload(fields: Mapping[str, object], size: int) -> bytes:
    """JSON of exactly `size` bytes, padded with spaces."""
    text = json.dumps(fields).encode()
    assert len(text) <= size
    return text.ljust(size)
