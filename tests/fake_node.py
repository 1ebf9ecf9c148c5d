"""A node to show in tests of the API."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from accord.core.monitoring.counters import Counters
from accord.core.monitoring.statistics import (
    ClientStatus,
    JournalStatus,
    PipelineStatus,
    Statistics,
)


class FakeNode:
    name = "alpha"
    version = "1.2"

    def __init__(self) -> None:
        self.counters = Counters(started_ms=0)
        self.counters.sessions = 3
        self.journal: JournalStatus | None = None
        self.pipeline: PipelineStatus | None = None
        self.is_serving = True
        self.clients_seen = 0

    def is_ready(self) -> bool:
        return self.is_serving

    def statistics(self) -> Statistics:
        taken = self.counters.snapshot(now_ms=2_500, journal=self.journal)
        return replace(taken, pipeline=self.pipeline)

    def clients(self) -> Iterator[ClientStatus]:
        for number in range(3):
            self.clients_seen += 1
            yield ClientStatus(client=f"client-{number}", is_connected=number > 0)
