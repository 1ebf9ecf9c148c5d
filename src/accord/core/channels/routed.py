"""The templates `Routed` and `Local`: events over routes, and events that stay at their node.

Routes keep a maximum delay, and follow several paths if the channel requires it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from accord.core.channels.template import Check, Template, one_of
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import TransitEvent

DATAGRAMS: Final = "datagrams"  # option: QoS 0 events of the channel may be lost


class Routed(Template):
    """Template `routed`: hands each event to the overlay with the channel's route requirement."""

    options: ClassVar[Mapping[str, Check]] = {DATAGRAMS: one_of("true", "false")}

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],
        definition: ChannelDefinition,
        now_us: int,  # noqa: ARG002
    ) -> None:
        requirement = Requirement(definition.max_delay_us, definition.paths, definition.resiliency)
        if event.qos == 0 and definition.options.get(DATAGRAMS) == "true":
            event = msgspec.structs.replace(event, is_droppable=True)
        self.context.send_routed(event, destinations, requirement)


class Local(Template):
    """Does nothing: the node's own router has already delivered the events."""
