"""A template for the few events that must get through whatever breaks: over every link there is.

Each node passes an event on to all its neighbours but the one it came from, the first time it
comes. No route has to be found or repaired: where any way is left, the event takes it. It costs as
many copies as there are links, so it is for alarms, not for video.

The option `hops` of a channel says how far events go at most (16 if it does not).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from accord.templates import (
    BEST_EFFORT,
    NO_DUPLICATES,
    ChannelDefinition,
    Check,
    Context,
    DuplicateFilter,
    Members,
    Template,
    TransitEvent,
    whole_number,
)

FAR: Final = 16


class Flooded(Template):
    promises: ClassVar[tuple[str, ...]] = (NO_DUPLICATES, BEST_EFFORT)
    options: ClassVar[Mapping[str, Check]] = {"hops": whole_number(1, 255)}

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.members = Members(context.watch)
        self._seen = DuplicateFilter()
        self._number = 0

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],  # noqa: ARG002 - the others are on the way to them
        definition: ChannelDefinition,
        now_us: int,  # noqa: ARG002
    ) -> None:
        self._number += 1
        event = msgspec.structs.replace(
            event,
            source=self.context.name,
            incarnation=self.context.incarnation,
            number=self._number,
        )
        self._seen.is_new(event.source, event.incarnation, event.number)
        self._spread(event, "", hops_of(definition))

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:  # noqa: ARG002
        if len(event.header) != 1 or event.source == self.context.name:
            return
        if not self._seen.is_new(event.source, event.incarnation, event.number):
            return
        if self.members.has(event.channel, self.context.name):
            self.context.deliver(event)
        self._spread(event, neighbour, event.header[0] - 1)

    def check_invariants(self) -> None:
        self.members.check_invariants()
        self._seen.check_invariants()

    def _spread(self, event: TransitEvent, origin: str, hops: int) -> None:
        if hops > 0:
            event = msgspec.structs.replace(event, header=bytes((hops,)))
            for neighbour in self.context.neighbours():
                if neighbour != origin:
                    self.context.forward(neighbour, event)


def hops_of(definition: ChannelDefinition) -> int:
    """A node without this check may have defined it: what is none counts as not said."""
    given = definition.options.get("hops", "")
    return min(int(given), 255) if given.isdecimal() and int(given) else FAR
