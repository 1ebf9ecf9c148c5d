"""How secondary nodes and their parents keep in touch."""

from __future__ import annotations

import msgspec


class TierOptions(msgspec.Struct, frozen=True, kw_only=True):
    pulse_us: int = 300_000  # a child is heard at least so often
    dead_us: int = 3_000_000  # a parent that is silent for so long has failed
    soon_us: int = 20_000  # what came is confirmed by then
    again_us: int = 3_000_000  # what is missing for so long is asked for: links lose nothing
    offer_us: int = 200_000  # a standby says so often what it keeps
    behind_us: int = 5_000_000  # an active parent that lacks what the standby has for so long
    return_us: int = 10_000_000  # a better parent must have been there for so long
    quiet_us: int = 10_000_000  # services do not speak with a child that is silent for so long
    lease_us: int = 30_000_000  # a child that is silent for so long has left
    kept_bytes: int = 8 << 20  # for one child
    kept_events: int = 8_192
    up_bytes: int = 4 << 20  # of events that the parents have not confirmed
    up_events: int = 4_096
    decide_us: int = 2_000_000  # until an answer about a channel is not waited for any more
    refresh_us: int = 30_000_000  # what is known of channels is asked for again
