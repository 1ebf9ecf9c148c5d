"""How a node takes part in the overlay."""

from __future__ import annotations

import msgspec


class OverlayOptions(msgspec.Struct, frozen=True, kw_only=True):
    ping_us: int = 1_000_000
    hello_bytes_per_s: int = 0  # that pings of all neighbours may take; 0: any
    refresh_us: int = 5_000_000  # of routes
    idle_us: int = 120_000_000  # routes by which nothing went for so long are torn down
    advertise_us: int = 50_000  # measurements are told others at most so often
    advertise_slowly_us: int = 10_000_000  # those that changed only a little
    acknowledge_us: int = 20_000
    give_up_us: int = 60_000_000  # on events that are not acknowledged
    transit_bytes: int = 16 << 20  # waiting for one neighbour
    unacknowledged_bytes: int = 16 << 20  # of one destination
    held_bytes: int = 1 << 20  # without a route yet, of one destination
    absent_us: int = 86_400_000_000  # until what an unreachable node said is forgotten
    tell_flows_us: int = 200_000  # told others at most so often, for people who look; 0: never
    tell_arrivals_us: int = 2_000_000  # the same for what came in time
