"""How one direction of a link behaves, and what it has carried."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from accord.sim.delays import Constant, Delay
from accord.sim.errors import SimulationError

STREAM: Final = "stream"
DATAGRAM: Final = "datagram"


class LinkModel(Struct, frozen=True, kw_only=True):
    """How one direction of a link behaves."""

    delay: Delay = Constant(10_000)
    jitter_us: int = 0  # up to so much more, evenly
    loss: float = 0.0
    duplication: float = 0.0
    is_reordering: bool = True  # datagrams with different delays overtake each other
    mode: Literal["stream", "datagram"] = STREAM
    rate_bps: int = 0  # 0 for any
    queue_bytes: int = 16_777_216
    tries: int = 10  # of a stream for one message, before its connection breaks
    dead_us: int = 10_000_000  # how long a stream bears a blocked link
    connect_us: int = 50_000  # until a stream's connection is made again

    def __post_init__(self) -> None:
        for name in ("loss", "duplication"):
            share = getattr(self, name)
            if not 0.0 <= share < 1.0:
                raise SimulationError(f"{name}: expected at least 0 and less than 1, got {share}")
        for name in ("jitter_us", "rate_bps", "queue_bytes", "tries", "dead_us", "connect_us"):
            if getattr(self, name) < 0:
                raise SimulationError(f"{name}: expected 0 or more, got {getattr(self, name)}")
        if self.delay.typical_us < 0:
            raise SimulationError(f"delay: expected 0 or more, got {self.delay.typical_us}")


class LinkCounts(Struct):
    """What one direction has carried, and what not, with the cause."""

    messages: int = 0
    bytes: int = 0
    data_bytes: int = 0
    arrived: int = 0
    lost: int = 0  # by chance
    blocked: int = 0  # while the link was down, or the other node
    overflowed: int = 0  # no room in the queue
    unconnected: int = 0  # sent where no connection was, or cut off by its end
    duplicated: int = 0
    retried: int = 0
    most_queued_bytes: int = 0
