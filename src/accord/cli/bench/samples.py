"""Latency samples with bounded memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from accord.cli.bench.frames import Numbers

LIMIT: Final = 2_000_000


class Samples:
    """Holds all values up to `limit`, then every second, fourth, … of them; `most` is exact."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._parts: list[Numbers] = []
        self._held = 0
        self.most = 0

    def __len__(self) -> int:
        return self._held

    def add(self, values: Numbers) -> None:
        self._parts.append(values)
        self._held += len(values)
        self.most = max(self.most, int(values.max(initial=0)))
        while self._held > self._limit:
            self._parts = [np.concatenate(self._parts)[::2].copy()]
            self._held = len(self._parts[0])

    def percentile(self, share: int) -> float:
        """The value below which `share` percent lie; 0 if empty."""
        return float(np.percentile(np.concatenate(self._parts), share)) if self._held else 0.0
