"""What the template of a channel asks of the node where clients publish to it."""

from __future__ import annotations

from typing import Final, NamedTuple


class ChannelTraits(NamedTuple):
    is_ordered: bool = False  # local clients get events when it says so, and only then
    can_be_full: bool = False  # publishers may have to wait
    problem: str = ""  # why nothing can be published here
    is_persistent: bool = False  # all that is published here is kept, here or where it goes up to
    goes_up: bool = False  # to a parent, whoever wants it
    keeps_order: bool = False  # no event overtakes another on its way to a client


DEFAULT_TRAITS: Final = ChannelTraits()
