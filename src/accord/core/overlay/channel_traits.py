"""Traits of a channel: what its template requires of a node where clients publish to it."""

from __future__ import annotations

from typing import Final, NamedTuple


class ChannelTraits(NamedTuple):
    """Requirements of a channel's template; the defaults require nothing."""

    is_ordered: bool = False  # the template alone decides when local clients get events
    can_be_full: bool = False  # publishers may be paused
    problem: str = ""  # why clients cannot publish here
    is_persistent: bool = False  # all events published here are kept, here or at the parent
    goes_up: bool = False  # events are sent to a parent, regardless of interests
    keeps_order: bool = False  # no event overtakes another on its way to a client


DEFAULT_TRAITS: Final = ChannelTraits()
