"""A secondary node's cache of channel definitions.

A child has no channel directory. It asks its active parent, whose directory is replicated to all
backbone nodes. If there are not too many definitions, the child fetches them all, page by page, and
can resolve every channel; otherwise it looks up each channel in use and keeps a bounded number.
Both are refreshed when the parent reports a change, and from time to time. Old entries stay valid
until the reply arrives.
"""

from __future__ import annotations

from typing import Final

from accord.core.channels.history.messages import is_persistent
from accord.core.model.bounded import LruMap
from accord.core.model.channels import ChannelMap, filter_selects
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import (
    ChannelDefinition,
    ChannelTraits,
    problem_with_definition,
    specificity,
)
from accord.core.tiers.messages import (
    MAX_ASKED,
    ChannelLookup,
    ChannelLookupReply,
    TemplateTraits,
    TierOptions,
)

LOCAL: Final = "local"
_UNDEFINED: Final = ChannelDefinition(name="#")
_MOST: Final = 4_096  # definitions, and channels
_AGAIN_US: Final = 500_000


class ChannelCache:
    """The cache; `has_changed` is set when a reply may have changed results of `bound`."""

    def __init__(self, options: TierOptions) -> None:
        self.has_changed = False
        self.templates: dict[str, TemplateTraits] = {}
        self.definitions: dict[str, tuple[ChannelDefinition, str]] = {}  # with the defining node
        self.is_complete = False
        # Persistent channels known before a restart, used until the current definitions are known.
        self.remembered: tuple[str, ...] = ()
        self._options = options
        self._defined: ChannelMap[ChannelDefinition] = ChannelMap()
        self._found: LruMap[str, ChannelDefinition | None] = LruMap(_MOST)  # by channel
        self._wanted: dict[str, bool] = {}
        self._directory: tuple[str, int, int] = ("", 0, 0)
        self._page: list[tuple[ChannelDefinition, str]] = []
        self._after: str | None = None  # start of the requested page; None: no fetch under way
        self._fetched_us = 0
        self._ask_us = NEVER_US

    # --------------------------------------------------------------------------- cached definitions

    def bound(self, channel: str) -> ChannelTraits | None:
        """Return what the channel's template requires of this node; None if unknown yet."""
        name = self._template_of(channel)
        if name is None:
            return None
        trait = self.templates.get(name)
        if trait is None:
            parent = self._directory[0]
            return ChannelTraits(
                problem=f"the template {name} of {channel} is not installed at {parent}"
            )
        # A journalled event gets its number at the parent, and reaches local clients from there.
        is_kept = self._is_kept(channel)
        return ChannelTraits(
            trait.is_ordered or is_kept,
            can_be_full=True,
            is_persistent=is_kept,
            goes_up=name != LOCAL,
            keeps_order=trait.keeps_order or is_kept,
        )

    def is_remembered(self, channel: str) -> bool:
        """Whether a channel that is still unknown was persistent before the restart."""
        return any(filter_selects(each, channel) for each in self.remembered)

    def persistent_filters(self) -> list[str]:
        """Filters that select persistent channels, as far as is known."""
        defined = [name for name, (each, _) in self.definitions.items() if _is_kept(each)]
        return list(dict.fromkeys((*defined, *self.remembered)))

    def keeps_all(self, channel: str) -> bool:
        """Whether the channel's publishers are paused rather than its events shed."""
        trait = self.templates.get(self._template_of(channel) or "")
        return trait is not None and (trait.can_be_full or self._is_kept(channel))

    def is_local(self, channel: str) -> bool:
        """Whether the channel's events stay at this node."""
        return self._template_of(channel) == LOCAL

    def look_up(self, channel: str) -> ChannelDefinition | None:
        if self.is_complete:
            found = self._defined.select(channel)
            return max(found, key=specificity, default=None)
        return self._found.get(channel)

    # -------------------------------------------------------------------------------------- lookups

    def request(self, channel: str, now_us: int) -> None:
        """Request a channel's definition, unless it is known or requested already."""
        if self._is_known(channel) or len(self._wanted) >= _MOST:
            return
        self._wanted[channel] = True
        self._ask_us = min(self._ask_us, now_us)

    def on_directory_version(
        self, parent: str, incarnation: int, directory: int, now_us: int
    ) -> None:
        """Apply the version of the active parent's directory; refetch if it has changed."""
        heard = (parent, incarnation, directory)
        is_old = self._fetched_us + self._options.refresh_us <= now_us
        if heard != self._directory or (is_old and self._after is None):
            self._directory = heard
            self._page = []
            self._after = ""
            self._wanted.update(dict.fromkeys([] if self.is_complete else self._found, True))
            self._ask_us = now_us

    def ask(self, now_us: int) -> ChannelLookup | None:
        """The lookup to send to the active parent now, if any."""
        if self._ask_us > now_us:
            return None
        channels = tuple(list(self._wanted)[:MAX_ASKED])
        is_asking = bool(channels) or self._after is not None
        self._ask_us = now_us + _AGAIN_US if is_asking else NEVER_US
        return ChannelLookup(channels, self._after) if is_asking else None

    def on_reply(self, message: ChannelLookupReply, now_us: int) -> None:
        if message.directory != self._directory[2]:
            return
        self.templates = message.templates
        for channel, definition in message.channels:
            self._wanted.pop(channel, None)
            if definition is None or not problem_with_definition(definition):
                self._found.put(channel, definition)
                self.has_changed = True
        if message.after is not None and message.after == self._after:
            self._turn_page(message, now_us)
        if self._wanted or self._after is not None:
            self._ask_us = now_us
        else:
            self._ask_us = NEVER_US

    def next_due_us(self) -> int:
        return self._ask_us

    def check_invariants(self) -> None:
        assert len(self.definitions) <= _MOST
        assert len(self._found) <= _MOST
        assert len(self._wanted) <= 2 * _MOST
        assert len(self._page) <= _MOST
        assert self._ask_us < NEVER_US or (not self._wanted and self._after is None)
        for name in self.definitions:
            assert self._defined.get(name) is not None

    def _turn_page(self, message: ChannelLookupReply, now_us: int) -> None:
        sound = [each for each in message.page if not problem_with_definition(each[0])]
        self._page += sound[: _MOST - len(self._page)]
        is_whole = len(sound) == len(message.page) and len(self._page) < _MOST
        if not message.is_last and is_whole and message.page:
            self._after = message.page[-1][0].name
            return
        for name in self.definitions:
            self._defined.remove(name)
        self.definitions = {each.name: (each, node) for each, node in self._page}
        for each, _ in self.definitions.values():
            self._defined.set(each.name, each)
        self.is_complete = message.is_last and is_whole
        self.has_changed = True
        self._page = []
        self._after = None
        self._fetched_us = now_us

    def _is_known(self, channel: str) -> bool:
        return self.is_complete or channel in self._found

    def _is_kept(self, channel: str) -> bool:
        """Whether a parent journals the channel's events."""
        return _is_kept(self.look_up(channel))

    def _template_of(self, channel: str) -> str | None:
        if not self._is_known(channel):
            return None
        return (self.look_up(channel) or _UNDEFINED).template


def _is_kept(definition: ChannelDefinition | None) -> bool:
    return definition is not None and definition.template != LOCAL and is_persistent(definition)
