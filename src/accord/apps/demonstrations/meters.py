"""Figures of each source in each phase: offered, received, dropped, shaped, latency.

An event belongs to the phase in which it was published, whenever it arrives. Sizes and latencies
are measured end to end; the outcome of events that do not arrive comes from the node's ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from accord.apps.demonstrations.scenario import DemoSource
from accord.core.monitoring.outcomes import DeliveryOutcome

HISTORY: Final = 60
LOSSES: Final = ("expired", "replaced", "shed", "refused")

Key = tuple[str, str]  # channel and source


@dataclass
class SourceStats:
    """A source on a channel, in one phase."""

    channel: str
    source: str
    offered: int = 0
    offered_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    shaped: int = 0
    shaped_from: int = 0
    shaped_to: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    importance: int | None = None
    policy: str = ""

    def add(self, other: SourceStats) -> None:
        """Add another source, counted together with this one."""
        self.offered += other.offered
        self.offered_bytes += other.offered_bytes
        self.received += other.received
        self.received_bytes += other.received_bytes
        self.latencies_s += other.latencies_s
        self.shaped += other.shaped
        self.shaped_from += other.shaped_from
        self.shaped_to += other.shaped_to
        self.dropped += other.dropped
        if self.importance is None or (other.importance or 0) < self.importance:
            self.importance, self.policy = other.importance, other.policy

    @property
    def drops(self) -> int:
        return sum(self.dropped.values())

    @property
    def share(self) -> float | None:
        """The fraction that arrived, of the events whose outcome is known."""
        known = self.received + self.drops
        return self.received / known if known else None

    @property
    def waiting(self) -> int:
        return max(0, self.offered - self.received - self.drops)

    @property
    def mean_s(self) -> float | None:
        return sum(self.latencies_s) / len(self.latencies_s) if self.latencies_s else None

    @property
    def p95_s(self) -> float | None:
        if not self.latencies_s:
            return None
        return sorted(self.latencies_s)[ceil(0.95 * len(self.latencies_s)) - 1]


@dataclass
class PhaseStats:
    """The lines of one phase, which began at `began_s`, and has lasted `seconds`.

    `received_bytes` is what arrived over the link during the phase, whenever it was published.
    """

    name: str
    began_ms: int
    began_s: float
    sources: dict[Key, SourceStats]
    seconds: float = 0.0
    received_bytes: float = 0.0

    @property
    def offered_kbps(self) -> float:
        return self._kbps(sum(line.offered_bytes for line in self.sources.values()))

    @property
    def received_kbps(self) -> float:
        return self._kbps(self.received_bytes)

    def kbps(self, line: SourceStats) -> float:
        return self._kbps(line.received_bytes)

    def _kbps(self, size: float) -> float:
        return size * 8 / 1_000 / self.seconds if self.seconds > 0 else 0.0


class Meters:
    """All phases so far, and for each source a short history for a chart."""

    def __init__(self, channels: Sequence[str], sources: Sequence[DemoSource]) -> None:
        order = sorted(sources, key=lambda each: (channels.index(each.channel), each.client))
        self.keys: list[Key] = [(each.channel, each.client) for each in order]
        self.phases: list[PhaseStats] = []
        self.rates: dict[Key, list[float]] = {key: [] for key in self.keys}
        self._arrived_s: float | None = None
        self._is_over = False
        self._known: set[tuple[str, str]] = set()
        self._second: Counter[Key] = Counter()
        self._published: dict[tuple[str, str, int], tuple[float, int, PhaseStats]] = {}

    @property
    def phase(self) -> PhaseStats:
        return self.phases[-1]

    def begin(self, name: str, *, now_ms: int, now_s: float) -> None:
        lines = {key: SourceStats(*key) for key in self.keys}
        self.phases.append(PhaseStats(name, now_ms, now_s, lines))

    def finish(self) -> None:
        """End the last phase: later arrivals do not count for its rate."""
        self._is_over = True

    def published(self, key: Key, number: int, size: int, now_s: float) -> None:
        line = self.phase.sources[key]
        line.offered += 1
        line.offered_bytes += size
        self._published[(*key, number)] = (now_s, size, self.phase)

    def received(self, key: Key, number: int, size: int, now_s: float) -> None:
        found = self._published.pop((*key, number), None)
        if found is None:
            return  # a duplicate
        sent_s, original, phase = found
        line = phase.sources[key]
        line.received += 1
        line.received_bytes += size
        line.latencies_s.append(now_s - sent_s)
        self._second[key] += size
        self._count_arrival(size, now_s)
        if size != original:
            line.shaped += 1
            line.shaped_from += original
            line.shaped_to += size

    def _count_arrival(self, size: int, now_s: float) -> None:
        """Count an arrival; early in a phase, part of it came over the link before the phase."""
        since_s, self._arrived_s = self._arrived_s, now_s
        if self._is_over:
            return
        began_s = self.phase.began_s
        is_split = since_s is not None and since_s < began_s < now_s
        part = (now_s - began_s) / (now_s - (since_s or 0.0)) if is_split else 1.0
        self.phase.received_bytes += size * part

    def tick(self, seconds: float) -> None:
        """Record the rates of the last `seconds` of the phase."""
        self.phase.seconds += seconds
        for key in self.keys:
            rates = self.rates[key]
            rates.append(self._second[key] * 8 / 1_000 / seconds)
            del rates[:-HISTORY]
        self._second.clear()

    def add_outcomes(self, outcomes: Iterable[DeliveryOutcome]) -> None:
        """Add outcomes from the ledger; a known one is not counted again."""
        for each in outcomes:
            phase = self._phase_at(each.received_ms)
            if phase is None or (each.channel, each.publisher) not in phase.sources:
                continue
            line = phase.sources[(each.channel, each.publisher)]
            line.importance, line.policy = each.importance, each.policy
            if each.outcome in LOSSES and (each.event, each.outcome) not in self._known:
                self._known.add((each.event, each.outcome))
                line.dropped[each.outcome] += each.count

    def _phase_at(self, time_ms: int) -> PhaseStats | None:
        begun = [phase for phase in self.phases if phase.began_ms <= time_ms]
        return begun[-1] if begun else None

    def __iter__(self) -> Iterator[SourceStats]:
        return (self.phase.sources[key] for key in self.keys)
