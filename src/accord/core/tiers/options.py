"""Timers and limits of the protocol between secondary nodes and their parents."""

from __future__ import annotations

import msgspec


class TierOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds; limits of the custody buffer and of the child's upstream window."""

    pulse_us: int = 300_000  # maximum interval between a child's heartbeats
    dead_us: int = 3_000_000  # silence after which a parent has failed
    soon_us: int = 20_000  # maximum delay of an acknowledgement
    again_us: int = 3_000_000  # delay of a nack: links are normally lossless
    offer_us: int = 200_000  # interval of a standby's inventories
    behind_us: int = 5_000_000  # how long an active parent may lack what the standby has
    return_us: int = 10_000_000  # how long a preferred parent must be standby to become active
    quiet_us: int = 10_000_000  # silence of a child after which services stop using its link
    lease_us: int = 30_000_000  # silence after which a child has left
    kept_bytes: int = 8 << 20  # custody buffer of one child
    kept_events: int = 8_192
    up_bytes: int = 4 << 20  # events that the parents have not confirmed
    up_events: int = 4_096
    decide_us: int = 2_000_000  # timeout of a channel lookup that delays an event
    refresh_us: int = 30_000_000  # refresh interval of channel definitions
