"""The clients of a run: both versions, QoS 1 and 2, prompt and lazy."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from accord.core.mqtt.codes import V5, V311
from tests.scenarios.kills.clients import Client
from tests.scenarios.kills.publishing import KEPT, OTHER, Publisher
from tests.scenarios.kills.subscribing import Churner, Subscriber


class Crew:
    def __init__(self, seed: int, port: int, rate_hz: int) -> None:
        self._seed = seed
        self._port = port
        self._rate_hz = rate_hz
        self.publishers = [
            self._publisher("p1", 1),
            self._publisher("p2", 2),
            self._publisher("p3", 2),
            self._publisher("p4", 1, version=V311),
            self._publisher("p5", 2, version=V311),
        ]
        self.retaining = [
            self._publisher("r1", 1, is_retaining=True),
            self._publisher("r2", 2, is_retaining=True),
        ]
        both = (f"{KEPT}/#", f"{OTHER}/#")
        self.subscribers = [
            Subscriber("s1", port, patterns=both, qos=1, is_lazy=True),
            Subscriber("s2", port, patterns=both, qos=2),
            Subscriber("s3", port, patterns=both, qos=2, is_lazy=True, window=200),
            Subscriber("s4", port, patterns=both, qos=2, version=V311),
        ]
        self.churner = Churner("c1", port)

    def everybody(self) -> Iterator[Client]:
        yield from self.subscribers
        yield from self.publishers
        yield from self.retaining
        yield self.churner

    def _publisher(
        self,
        name: str,
        qos: int,
        *,
        version: int = V5,
        is_retaining: bool = False,
    ) -> Publisher:
        return Publisher(
            name,
            self._port,
            random=Random(f"{self._seed} {name}"),  # noqa: S311
            qos=qos,
            version=version,
            is_retaining=is_retaining,
            rate_hz=self._rate_hz,
        )
