"""Children as receivers in the parent's router, and their interests in the overlay.

Children are receivers in the router, as other nodes are, so that one pass finds them too. Their
interests are announced as the parent's own; events that only children want go to them alone.
Channel lookups are answered from the directory that backbone nodes share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.channels.channels import ROUTED, Channels
from accord.core.model.bounded import LruMap
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Interest
from accord.core.overlay.signalling import TransitEvent
from accord.core.router.remote_interests import RemoteInterests, predicate_of
from accord.core.router.rights import FEEDBACK
from accord.core.router.router import Router
from accord.core.tiers.custody import SeenEvents
from accord.core.tiers.feedback_router import FeedbackRouter
from accord.core.tiers.messages import (
    ChannelLookup,
    ChannelLookupReply,
    TemplateTraits,
    child_incarnation_of,
    event_id_of,
)

_PAGE: Final = 64
_PAGE_BYTES: Final = 32_768
LINES: Final = 16_384  # (child, incarnation, channel) entries
_PLAIN: Final = ("", "")


class ChildReceivers:
    """Router side of a parent;

    `interested` holds the children that want the last published message.
    """

    def __init__(self, router: Router, channels: Channels, feedback_router: FeedbackRouter) -> None:
        self.remotes = RemoteInterests(router)
        self.interested = self.remotes.interested
        self._channels = channels
        self._feedback_router = feedback_router
        self._interests: dict[tuple[str, str], Interest] = {}
        self._seen = SeenEvents()
        self._sorted: tuple[int, list[ChannelDefinition]] = (-1, [])  # with the registry's version
        # Last event number by child, its incarnation, and channel.
        self._latest: LruMap[tuple[str, int, str], int] = LruMap(LINES)
        # Returns the incarnation of a child known here, otherwise 0.
        self.incarnation_of: Callable[[str], int] = lambda _: 0

    def set_interest(self, child: str, key: str, interest: Interest | None) -> None:
        """Set or, with None, remove an interest of a child."""
        overlay = self._channels.overlay
        known = self._interests.pop((child, key), None)
        if interest is not None:
            self._interests[child, key] = interest
            predicate = predicate_of(interest)
            condition = _PLAIN if predicate is None else (interest.where, interest.xpath)
            overlay.add_interest(interest.filter, condition, predicate)
        if known is not None:
            condition = _PLAIN if predicate_of(known) is None else (known.where, known.xpath)
            overlay.remove_interest(known.filter, condition)
        self.remotes.set_interest(child, key, interest)

    def is_new(self, event: TransitEvent) -> bool:
        """Whether an event is not a duplicate; only events of children can be.

        On a channel that keeps the order of its sources, an event after a later one counts as a
        duplicate: this node was not meant to get it through another parent.
        """
        if not event.child:
            return True
        if not self._channels.is_in_order(event.channel):
            return self._seen.is_new(event_id_of(event))
        if self.has_seen(event):
            return False
        self._latest.put(
            (event.child, child_incarnation_of(event), event.channel), event.child_number
        )
        return True

    def has_seen(self, event: TransitEvent) -> bool:
        """Whether an event of a child, or a later one in order, has arrived here by any path."""
        if self._channels.is_in_order(event.channel):
            line = event.child, child_incarnation_of(event), event.channel
            return event.child_number <= (self._latest.get(line) or 0)
        return event_id_of(event) in self._seen

    def receivers_of(self, event: TransitEvent, *, is_echoed: bool = False) -> list[str]:
        """The interested children that get an event: all but the child that published it.

        The publishing child gets it, too, if the channel is ordered or persistent, or if it
        `is_echoed`.
        """
        found = list(self.interested)
        self.interested.clear()
        if is_echoed or event.child not in found:
            return found
        if self.incarnation_of(event.child) not in (0, child_incarnation_of(event)):
            return found  # from another node of that name, or from an earlier incarnation
        bound = self._channels.channel_traits(event.channel)
        if bound.is_ordered or bound.is_persistent:
            return found
        return [child for child in found if child != event.child]

    def unconfirmed(self, channel: str) -> list[int]:
        if channel == FEEDBACK:
            return self._feedback_router.unconfirmed()
        return self._channels.unconfirmed(channel)

    def child_timeout_us(self, channel: str) -> int:
        return NEVER_US if channel == FEEDBACK else self._channels.stall_timeout_us(channel)

    def directory_version(self) -> int:
        return self._channels.overlay.directory.version

    def look_up(self, request: ChannelLookup) -> ChannelLookupReply:
        registry = self._channels.overlay.directory
        found = tuple((each, registry.look_up(each)) for each in request.channels)
        if self._sorted[0] != registry.version:
            self._sorted = (registry.version, registry.all())
        definitions = self._sorted[1]
        after = request.after
        left = [] if after is None else [each for each in definitions if each.name > after]
        page = _page(left)
        names = dict.fromkeys([ROUTED, *(each.template for each in definitions)])
        traits = {name: self._channels.template_traits(name) for name in names}
        return ChannelLookupReply(
            registry.version,
            {
                name: TemplateTraits(bound.is_ordered, bound.can_be_full, bound.keeps_order)
                for name, bound in traits.items()
                if bound is not None
            },
            found,
            tuple((each, registry.origin_of(each.name)) for each in page),
            after,
            len(page) == len(left),
        )

    def check_invariants(self) -> None:
        self._seen.check_invariants()
        assert len(self._latest) <= LINES
        assert not self.interested


def _page(definitions: list[ChannelDefinition]) -> list[ChannelDefinition]:
    """As many definitions as fit into one message, and at least one."""
    page: list[ChannelDefinition] = []
    size = 0
    for each in definitions[:_PAGE]:
        size += len(each.name) + len(each.template)
        size += sum(len(name) + len(value) for name, value in each.options.items())
        if page and size > _PAGE_BYTES:
            break
        page.append(each)
    return page
