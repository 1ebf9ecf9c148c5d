"""Timers and limits of a node in the overlay."""

from __future__ import annotations

import msgspec


class OverlayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds, sizes in bytes."""

    ping_us: int = 1_000_000
    hello_bytes_per_s: int = 0  # allowance for the pings of all neighbours; 0: unlimited
    refresh_us: int = 5_000_000  # refresh interval of routes
    idle_us: int = 120_000_000  # idle timeout of routes
    advertise_us: int = 50_000  # minimum interval between announcements of a link's state
    advertise_slowly_us: int = 10_000_000  # the same for small changes
    acknowledge_us: int = 20_000  # delay of acks, to send one for many events
    give_up_us: int = 60_000_000  # unacknowledged events, or events without route, time out
    transit_bytes: int = 16 << 20  # outbox of one neighbour
    unacknowledged_bytes: int = 16 << 20  # retransmission buffer of one destination
    held_bytes: int = 1 << 20  # events of one flow that wait for its first route
    absent_us: int = 86_400_000_000  # records of an unreachable node expire
    tell_flows_us: int = 200_000  # minimum interval between publications of flows; 0: never
    tell_arrivals_us: int = 2_000_000  # the same for arrival counts
