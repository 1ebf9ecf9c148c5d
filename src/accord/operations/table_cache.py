"""What tables of thousands of channels need of a node each time, kept while it holds."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from accord.core.model.channels import ChannelMap, is_internal

if TYPE_CHECKING:  # clients import this for the requests, without a node's parts
    from accord.core.broker.session import MqttSession
    from accord.core.monitoring.samplers import ChannelSampler
    from accord.core.overlay.status import ChannelStatus
    from accord.core.router.rights import Rights
    from accord.operations.operation import Asker

_FRESH_MS: Final = 2_000
_KEPT_MS: Final = 5_000
_MAX_RIGHTS: Final = 8
MAX_LOOKED_UP: Final = 20_000


class ChannelDefinitions:
    """The definition that applies to a channel: the most specific one that selects it."""

    def __init__(self, statuses: Sequence[ChannelStatus] = ()) -> None:
        self.names = [each.name for each in statuses]
        self.traits = [
            (each.name, each.template, each.max_delay_us, each.options) for each in statuses
        ]
        self.kept: dict[str, bool] = {}  # by channel, as far as it was asked for
        self._defined: ChannelMap[ChannelStatus] = ChannelMap()
        for each in statuses:
            self._defined.set(each.name, each)
        self._looked_up: dict[str, ChannelStatus | None] = {}

    def look_up(self, channel: str) -> ChannelStatus | None:
        if not self.names:
            return None
        if channel in self._looked_up:
            return self._looked_up[channel]
        from accord.core.overlay.channel_directory import specificity  # noqa: PLC0415 (see above)

        found = max(self._defined.select(channel), key=specificity, default=None)
        if len(self._looked_up) >= MAX_LOOKED_UP:
            self._looked_up.clear()
        self._looked_up[channel] = found
        return found


class TableCache:
    """Of one node; `now_ms` says what is still fresh."""

    def __init__(self) -> None:
        self._definitions = ChannelDefinitions()
        self._defined_ms: int | None = None
        self._publishers: Counter[str] = Counter()
        self._published_ms: int | None = None
        self._subscribers: dict[str, int] = {}
        self._subscribed = -1
        self._subscribed_ms: int | None = None
        self._names: list[str] = []
        self._counted = -1
        self._shown: ChannelDefinitions | None = None  # the definitions that names include
        self._visible: OrderedDict[Rights, list[str]] = OrderedDict()

    def definitions(self, statuses: Iterable[ChannelStatus]) -> ChannelDefinitions:
        """An index of these definitions: the one before, if they are equal."""
        made = ChannelDefinitions(list(statuses))
        if made.traits != self._definitions.traits:
            self._definitions = made
        return self._definitions

    def known_definitions(self, now_ms: int) -> ChannelDefinitions | None:
        """The last ones, if they are fresh; otherwise they are to be renewed now."""
        if _is_fresh(self._defined_ms, now_ms):
            return self._definitions
        self._defined_ms = now_ms
        return None

    def publishers(self, sessions: Iterable[MqttSession], now_ms: int) -> Counter[str]:
        """How many connected clients publish to each channel."""
        if not _is_fresh(self._published_ms, now_ms):
            self._published_ms = now_ms
            self._publishers = Counter()
            for session in sessions:
                connection = session.connection
                if connection is not None and connection.publisher is not None:
                    channels = {channel for channel, _ in connection.publisher.published()}
                    self._publishers.update(channels)
        return self._publishers

    def subscribers(self, version: int, now_ms: int) -> dict[str, int]:
        """Counts by channel, to be added to; of another version they stay for some seconds."""
        is_recent = _is_fresh(self._subscribed_ms, now_ms, _KEPT_MS)
        if self._subscribed != version and not is_recent:
            self._subscribed, self._subscribed_ms, self._subscribers = version, now_ms, {}
        return self._subscribers

    def visible(
        self, sampler: ChannelSampler, defined: ChannelDefinitions, asker: Asker
    ) -> list[str]:
        """The channels that the asker may see, by name: counted ones, and those defined."""
        if sampler.counted != self._counted or defined is not self._shown:
            self._counted, self._shown = sampler.counted, defined
            exact = (each for each in defined.names if "+" not in each and "#" not in each)
            shown = (each for each in exact if not is_internal(each))
            self._names = sorted({*sampler.names(), *shown})
            self._visible.clear()
        if asker.rights.policies:
            return self._names
        found = self._visible.pop(asker.rights, None)
        if found is None:
            found = [each for each in self._names if asker.may_see(each)]
        self._visible[asker.rights] = found
        while len(self._visible) > _MAX_RIGHTS:
            self._visible.popitem(last=False)
        return found


def _is_fresh(taken_ms: int | None, now_ms: int, for_ms: int = _FRESH_MS) -> bool:
    return taken_ms is not None and 0 <= now_ms - taken_ms < for_ms
