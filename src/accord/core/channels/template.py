"""The interface through which the routing logic of channels plugs in.

A channel is bound to a template by its definition in the registry. Each node has one object per
template, for all channels bound to it. It is told what local clients publish and what other nodes
say, and acts through its `context`: sends events and messages of its own to neighbours, hands
events to local clients, and watches what is known of the overlay. All of it is pure, time is an
argument, and the simulator runs the same objects as a live node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Protocol

from accord.core.channels.option_checks import Check
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import Carried

# What a template can promise; `accord.sim.check_template` looks whether it is kept.
ONCE: Final = "once"  # nobody gets anything twice
BEST_EFFORT: Final = "best effort"  # nothing is lost but what links lose
ALL: Final = "all"  # every member that stays gets everything
IN_ORDER: Final = "in order"  # what one source publishes comes in that order
SAME_ORDER: Final = "same order"  # all members get what they get in the same order


class Context(Protocol):
    """What a template may use of its node."""

    name: str  # of the node
    incarnation: int  # larger each time the node is started
    map: LinkStateMap  # all nodes and links, kept up to date

    def neighbours(self) -> list[str]:
        """Those over links that work."""

    def say(self, neighbour: str, channel: str, body: bytes) -> None:
        """A message of the template's own, to the same template at a neighbour."""

    def pass_on(self, neighbour: str, event: Carried) -> None:
        """Send an event to the same template at a neighbour, with what it says in `note`."""

    def is_waiting(self, neighbour: str, channel: str, source: str, number: int) -> bool:
        """Whether an event that was passed on is still here, as the link takes no more now.

        It is not told of events that go to several neighbours at once, by multicast.
        """

    def carry(self, event: Carried, destinations: list[str], requirement: Requirement) -> None:
        """Send an event over routes that meet `requirement`, several to each if it says so."""

    def takes(self, channel: str) -> bool:
        """Whether this node has room for more of a channel now.

        Who promises `ALL` asks before each `deliver`. What can't be delivered yet is kept within
        bounds, its source held back, and after a while asked again.
        """

    def deliver(self, event: Carried) -> None:
        """Hand an event to the local clients that want it."""

    def lose(self, event: Carried, cause: str, count: int = 1) -> None:
        """A copy of an event ends here, or of `count` like it; people can look up why."""

    def definition(self, channel: str) -> ChannelDefinition | None:
        """How a channel is defined."""

    def watch(self, kind: str, callback: Callable[[str, str, bytes | None], None]) -> None:
        """Be told what all nodes say of that kind (link, need, channel), now and when it changes.

        It is given the node, the key of what it says, and the value, or None where that is gone.
        """


class Template:
    """One per node and kind. A template overrides what it needs; all it does not is nothing.

    Only answers to a source go to its node without its doing, over routes as its channel needs.
    """

    promises: ClassVar[tuple[str, ...]] = ()
    # The options that its channels may have besides `persistent`, and how to check each.
    options: ClassVar[Mapping[str, Check]] = {}
    # Whether it also hands events to clients of the node where they were published. Otherwise
    # they have them already when the template hears of it.
    delivers_own: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.context = context

    def published(
        self, event: Carried, destinations: list[str], definition: ChannelDefinition, now_us: int
    ) -> None:
        """A local client published; `destinations` are the nodes whose clients want it."""

    def feedback(
        self,
        event: Carried,
        node: str,
        definition: ChannelDefinition,
        now_us: int,  # noqa: ARG002
    ) -> None:
        """A local client answers the source, at `node`, of an event it got."""
        requirement = Requirement(definition.max_delay_us, definition.paths, definition.resiliency)
        self.context.carry(event, [node], requirement)

    def carried(self, neighbour: str, event: Carried, now_us: int) -> None:
        """The same template at a neighbour has passed an event on."""

    def said(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        """The same template at a neighbour has a message."""

    def advance(self, now_us: int) -> None:
        """Do what is due."""

    def next_due_us(self) -> int | None:
        return None

    def has_room(self, channel: str) -> bool:  # noqa: ARG002
        """Whether local clients may publish more to it now."""
        return True

    def unsettled(self, channel: str) -> list[int]:  # noqa: ARG002
        """Events that were published here, by their `event`, and some member may still lack."""
        return []

    def left(self) -> dict[str, int]:
        """How much it keeps, by kind; nothing some time after all members have left."""
        return {}

    def check_invariants(self) -> None:
        """AssertionError where something is as it must never be."""
