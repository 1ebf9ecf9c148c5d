"""What a parent does for its children at its own node: in its router, and among the others.

The children stand in the router as receivers, as other nodes do, so that one pass finds them too.
Their needs are needs of the parent itself; what comes for them alone it does not hand to anybody
else. Questions about channels are answered from the directory that backbone nodes share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.channels.channels import ROUTED, Channels
from accord.core.channels.streams.source_stream import NEVER
from accord.core.model.lru import LruMap
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.interests import Need
from accord.core.overlay.signalling import Carried
from accord.core.router.remote_interests import RemoteInterests, predicate_of
from accord.core.router.rights import FEEDBACK
from accord.core.router.router import Router
from accord.core.tiers.feedback_router import FeedbackRouter
from accord.core.tiers.messages import (
    ChannelLookup,
    ChannelLookupReply,
    TemplateTraits,
    child_incarnation_of,
    event_id_of,
)
from accord.core.tiers.seen_events import SeenEvents

_PAGE: Final = 64
_PAGE_BYTES: Final = 32_768
LINES: Final = 16_384  # children's channels with an order that are remembered
_PLAIN: Final = ("", "")


class ChildReceivers:
    """`wanted` says which of them want the message that was published last."""

    def __init__(self, router: Router, channels: Channels, answering: FeedbackRouter) -> None:
        self.remotes = RemoteInterests(router)
        self.wanted = self.remotes.wanted
        self._channels = channels
        self._answering = answering
        self._needs: dict[tuple[str, str], Need] = {}
        self._seen = SeenEvents()
        self._sorted: tuple[int, list[ChannelDefinition]] = (-1, [])  # as of a version
        # By child, its life, and channel.
        self._latest: LruMap[tuple[str, int, str], int] = LruMap(LINES)
        # Since when a child that is known here has been there; 0 where it is not known.
        self.incarnation_of: Callable[[str], int] = lambda _: 0

    def need(self, child: str, key: str, need: Need | None) -> None:
        """A child wants something, or does not any more."""
        overlay = self._channels.overlay
        known = self._needs.pop((child, key), None)
        if need is not None:
            self._needs[child, key] = need
            predicate = predicate_of(need)
            condition = _PLAIN if predicate is None else (need.where, need.xpath)
            overlay.need(need.filter, condition, predicate)
        if known is not None:
            condition = _PLAIN if predicate_of(known) is None else (known.where, known.xpath)
            overlay.unneed(known.filter, condition)
        self.remotes.need(child, key, need)

    def is_new(self, event: Carried) -> bool:
        """Whether an event of some child comes for the first time; all others do.

        Where a channel keeps the order of its sources, one that comes after a later one does not
        count: by another parent this node was not meant to get it.
        """
        if not event.origin:
            return True
        if not self._channels.is_in_order(event.channel):
            return self._seen.is_new(event_id_of(event))
        if self.has_seen(event):
            return False
        self._latest.put((event.origin, child_incarnation_of(event), event.channel), event.original)
        return True

    def has_seen(self, event: Carried) -> bool:
        """Whether an event of a child, or a later one, has come here, by whichever way."""
        if self._channels.is_in_order(event.channel):
            line = event.origin, child_incarnation_of(event), event.channel
            return event.original <= (self._latest.get(line) or 0)
        return event_id_of(event) in self._seen

    def for_whom(self, event: Carried, *, is_echoed: bool = False) -> list[str]:
        """Of those that want an event, who is to get it: not the child it is of, if it is that one.

        That one gets it, too, where its channel has an order of its own or is persistent, and where
        it `is_echoed`.
        """
        found = list(self.wanted)
        self.wanted.clear()
        if is_echoed or event.origin not in found:
            return found
        if self.incarnation_of(event.origin) not in (0, child_incarnation_of(event)):
            return found  # it is of a namesake, or of a life before
        bound = self._channels.bound(event.channel)
        if bound.is_ordered or bound.is_persistent:
            return found
        return [child for child in found if child != event.origin]

    def unsettled(self, channel: str) -> list[int]:
        if channel == FEEDBACK:
            return self._answering.unsettled()
        return self._channels.unsettled(channel)

    def patience_us(self, channel: str) -> int:
        return NEVER if channel == FEEDBACK else self._channels.patience_us(channel)

    def directory(self) -> int:
        return self._channels.overlay.registry.version

    def answer(self, ask: ChannelLookup) -> ChannelLookupReply:
        registry = self._channels.overlay.registry
        found = tuple((each, registry.look_up(each)) for each in ask.channels)
        if self._sorted[0] != registry.version:
            self._sorted = (registry.version, registry.all())
        definitions = self._sorted[1]
        after = ask.after
        left = [] if after is None else [each for each in definitions if each.name > after]
        page = _page(left)
        names = dict.fromkeys([ROUTED, *(each.template for each in definitions)])
        traits = {name: self._channels.trait(name) for name in names}
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
        assert not self.wanted


def _page(definitions: list[ChannelDefinition]) -> list[ChannelDefinition]:
    """As many as fit into one message, and one at least."""
    page: list[ChannelDefinition] = []
    size = 0
    for each in definitions[:_PAGE]:
        size += len(each.name) + len(each.template)
        size += sum(len(name) + len(value) for name, value in each.options.items())
        if page and size > _PAGE_BYTES:
            break
        page.append(each)
    return page
