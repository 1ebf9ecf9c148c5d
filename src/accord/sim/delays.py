"""Link delays: drawn at random for each message, or replayed from a recording."""

from __future__ import annotations

import math
from random import Random

from msgspec import Struct

from accord.sim.trace import SimulationError


class Constant(Struct, frozen=True, tag="constant"):
    delay_us: int

    def draw(self, random: Random, now_us: int) -> int:  # noqa: ARG002
        return self.delay_us

    @property
    def typical_us(self) -> int:
        return self.delay_us


class Uniform(Struct, frozen=True, tag="uniform"):
    least_us: int
    most_us: int

    def __post_init__(self) -> None:
        if not 0 <= self.least_us <= self.most_us:
            raise SimulationError(
                f"expected a least delay of at most {self.most_us} µs, got {self.least_us}"
            )

    def draw(self, random: Random, now_us: int) -> int:  # noqa: ARG002
        return self.least_us + int(random.random() * (self.most_us - self.least_us + 1))

    @property
    def typical_us(self) -> int:
        return (self.least_us + self.most_us) // 2


class Normal(Struct, frozen=True, tag="normal"):
    """Normally distributed, but at least a tenth of the mean."""

    mean_us: int
    deviation_us: int

    def draw(self, random: Random, now_us: int) -> int:  # noqa: ARG002
        return max(self.mean_us // 10, round(random.gauss(self.mean_us, self.deviation_us)))

    @property
    def typical_us(self) -> int:
        return self.mean_us


class Lognormal(Struct, frozen=True, tag="lognormal"):
    """Like round trips through many queues: few are much shorter, some are much longer.

    `sigma` is the deviation of the logarithm: with 0.5, one of six takes 1.6 times the median.
    """

    median_us: int
    sigma: float

    def draw(self, random: Random, now_us: int) -> int:  # noqa: ARG002
        # Ten deviations do not occur in practice, but an overflow would end the run.
        exponent = min(max(random.gauss(0.0, self.sigma), -20.0), 20.0)
        return round(self.median_us * math.exp(exponent))

    @property
    def typical_us(self) -> int:
        return self.median_us


class Recorded(Struct, frozen=True, tag="recorded"):
    """Measured delays: sampled at random, or replayed cyclically, each for `step_us`."""

    series: tuple[int, ...]
    step_us: int = 0

    def __post_init__(self) -> None:
        if not self.series or min(self.series) < 0:
            raise SimulationError("expected at least one recorded delay, and none below 0")

    def draw(self, random: Random, now_us: int) -> int:
        series = self.series
        if self.step_us:
            return series[now_us // self.step_us % len(series)]
        return series[int(random.random() * len(series))]

    @property
    def typical_us(self) -> int:
        return sorted(self.series)[len(self.series) // 2]


Delay = Constant | Uniform | Normal | Lognormal | Recorded
