"""The rate of each importance on a link, and what that leaves to the others."""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES
from accord.core.scheduling.strategies import FIFO, WEIGHTED_FAIR, Discipline

_WINDOW_MS: Final = 1_000
_MIN_SHARE: Final = 8  # an importance is always left at least an eighth of the link


class ImportanceRates:
    """Rates of one destination; kept only where shaping needs them."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._bytes = [0] * IMPORTANCES
        self._rates_bps = [0] * IMPORTANCES

    def sent(self, importance: int, size: int) -> None:
        self._bytes[importance] += size

    def left_bps(
        self, importance: int, carries_bps: int, discipline: Discipline, now_ms: int
    ) -> int:
        """What the link leaves to `importance`, judged by the last one or two seconds."""
        self._advance(now_ms)
        if discipline.strategy == FIFO:
            return carries_bps
        above_bps = sum(self._rates_bps[importance + 1 :])
        left_bps = max(carries_bps - above_bps, carries_bps // _MIN_SHARE)
        if discipline.strategy == WEIGHTED_FAIR:
            weights = discipline.weights
            active = weights[importance]
            for other in range(IMPORTANCES):
                if other != importance and self._rates_bps[other]:
                    active += weights[other]
            left_bps = max(left_bps, carries_bps * weights[importance] // active)
        return left_bps

    def _advance(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms < _WINDOW_MS:
            return
        self._since_ms = now_ms
        for importance in range(IMPORTANCES):
            rate_bps = self._bytes[importance] * 8_000 // elapsed_ms
            # Old rates count for nothing, the previous window for half.
            before_bps = self._rates_bps[importance] if elapsed_ms < 2 * _WINDOW_MS else rate_bps
            self._rates_bps[importance] = (rate_bps + before_bps) // 2
            self._bytes[importance] = 0
