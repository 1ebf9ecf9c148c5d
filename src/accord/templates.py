"""The interface for authors of templates; `accord.sim.check_template` tests one.

from accord.templates import ChannelDefinition, Template, TransitEvent

class Mine(Template):
    def on_published(self, event, destinations, definition, now_us): ...
"""

import warnings
from typing import Any, Final

from accord.core.channels.members import Members
from accord.core.channels.rendezvous import Rendezvous
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

_RENAMED: Final = {
    "ALL": "COMPLETE",
    "ONCE": "NO_DUPLICATES",
    "Carried": "TransitEvent",
    "Duplicates": "DuplicateFilter",
}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    warnings.warn(f"accord.templates.{name} is now {new}", DeprecationWarning, stacklevel=2)
    return globals()[new]
