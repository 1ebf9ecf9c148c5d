"""The interface for authors of templates; `accord.sim.check_template` tests one.

from accord.templates import ChannelDefinition, Template, TransitEvent

class Mine(Template):
    def on_published(self, event, destinations, definition, now_us): ...
"""

from accord.core.channels.members import Members, Rendezvous
from accord.core.channels.template import (
    BEST_EFFORT,
    COMPLETE,
    IN_ORDER,
    NO_DUPLICATES,
    SAME_ORDER,
    Check,
    Context,
    Template,
    number,
    one_of,
    whole_number,
)
from accord.core.channels.trees.tree import OfficialTree
from accord.core.model.former_names import deprecated
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.duplicate_filter import DuplicateFilter
from accord.core.overlay.signalling import TransitEvent

__all__ = [
    "BEST_EFFORT",
    "COMPLETE",
    "IN_ORDER",
    "NO_DUPLICATES",
    "SAME_ORDER",
    "ChannelDefinition",
    "Check",
    "Context",
    "DuplicateFilter",
    "Members",
    "OfficialTree",
    "Rendezvous",
    "Template",
    "TransitEvent",
    "number",
    "one_of",
    "whole_number",
]

__getattr__ = deprecated(
    globals(),
    {
        "ALL": "COMPLETE",
        "ONCE": "NO_DUPLICATES",
        "Carried": "TransitEvent",
        "Duplicates": "DuplicateFilter",
    },
)
