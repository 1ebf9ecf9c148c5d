"""What the author of a template builds on; `accord.sim.check_template` tries it out.

from accord.templates import Carried, ChannelDefinition, Template

class Mine(Template):
    def published(self, event, destinations, definition, now_us): ...
"""

from accord.core.channels.members import Members
from accord.core.channels.rendezvous import Rendezvous
from accord.core.channels.template import (
    ALL,
    BEST_EFFORT,
    IN_ORDER,
    ONCE,
    SAME_ORDER,
    Check,
    Context,
    Template,
    number,
    one_of,
    whole_number,
)
from accord.core.channels.trees.tree import OfficialTree
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.duplicate_filter import Duplicates
from accord.core.overlay.signalling import Carried

__all__ = [
    "ALL",
    "BEST_EFFORT",
    "IN_ORDER",
    "ONCE",
    "SAME_ORDER",
    "Carried",
    "ChannelDefinition",
    "Check",
    "Context",
    "Duplicates",
    "Members",
    "OfficialTree",
    "Rendezvous",
    "Template",
    "number",
    "one_of",
    "whole_number",
]
