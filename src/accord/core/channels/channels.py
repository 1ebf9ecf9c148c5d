"""Which template serves which channel, at one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from accord.core.channels.local import Local
from accord.core.channels.multicast import SingleSource, Unreliable
from accord.core.channels.reliable import Reliable
from accord.core.channels.routed import Routed
from accord.core.channels.template import Context, Template
from accord.core.channels.total_order import TotalOrder
from accord.core.overlay.map import Map
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.registry import ChannelDefinition
from accord.core.overlay.routes import Requirement
from accord.core.overlay.signals import Carried, Said

ROUTED: Final = "routed"
SHIPPED: Final[Mapping[str, type[Template]]] = {
    "local": Local,
    ROUTED: Routed,
    "single_source": SingleSource,
    "unreliable": Unreliable,
    "reliable": Reliable,
    "total_order": TotalOrder,
}
UNKNOWN: Final = "template not installed"
_UNDEFINED: Final = ChannelDefinition(name="#")

T = TypeVar("T", bound=Template)


class Channels:
    """Publishes through templates; `missing` counts events whose template is not installed."""

    def __init__(self, overlay: Overlay, templates: Mapping[str, type[Template]] = SHIPPED) -> None:
        self.overlay = overlay
        self.templates = {
            name: make(_Context(overlay, name)) for name, make in sorted(templates.items())
        }
        self.services: dict[str, Template] = {}
        self.missing: dict[str, int] = {}
        self._timed = self._find_timed()
        overlay.on_said = self._said
        overlay.on_carried = self._carried

    def serve(self, name: str, make: Callable[[Context], T]) -> T:
        """Let something talk to its like at other nodes that no channel is bound to."""
        assert name not in self.templates
        service = make(_Context(self.overlay, name))
        self.services[name] = service
        self._timed = self._find_timed()
        return service

    def publish(self, event: Carried, destinations: list[str], now_us: int) -> None:
        """An event of a local client that clients of those nodes want."""
        self.overlay.now_us = now_us
        definition = self.overlay.registry.look_up(event.channel) or _UNDEFINED
        template = self.templates.get(definition.template)
        if template is None:
            self.missing[definition.template] = self.missing.get(definition.template, 0) + 1
            self.overlay.lose(event, UNKNOWN)
            return
        template.published(event, destinations, definition, now_us)

    def replay(self, event: Carried, destinations: list[str], now_us: int) -> None:
        """Send something that was kept to those nodes alone, whatever template the others use."""
        self.overlay.now_us = now_us
        definition = self.overlay.registry.look_up(event.channel) or _UNDEFINED
        self.templates[ROUTED].published(event, destinations, definition, now_us)

    def delivers_own(self, channel: str) -> bool:
        """Whether its template hands events to local clients too, in their turn.

        Then they must get them in no other way, and it is told of all that is published.
        """
        template = self._template_of(channel)
        return template is not None and template.delivers_own

    def has_room(self, channel: str) -> bool:
        """Whether local clients may publish more to it now."""
        template = self._template_of(channel)
        return template is None or template.has_room(channel)

    def advance(self, now_us: int) -> None:
        self.overlay.advance(now_us)
        for each in self._timed:
            each.advance(now_us)

    def next_due_us(self) -> int:
        dues = [each.next_due_us() for each in self._timed]
        return min([self.overlay.next_due_us(), *(due for due in dues if due is not None)])

    def check_invariants(self) -> None:
        self.overlay.check_invariants()
        for each in self._all():
            each.check_invariants()

    def _all(self) -> Iterator[Template]:
        yield from self.templates.values()
        yield from self.services.values()

    def _find_timed(self) -> list[Template]:
        """Those that ever have something to do when time passes."""
        return [
            each
            for each in self._all()
            if type(each).advance is not Template.advance
            or type(each).next_due_us is not Template.next_due_us
        ]

    def _template_of(self, channel: str) -> Template | None:
        definition = self.overlay.registry.look_up(channel) or _UNDEFINED
        return self.templates.get(definition.template)

    def _carried(self, neighbour: str, event: Carried, now_us: int) -> None:
        template = self.templates.get(event.template)
        if template is None:
            self.overlay.lose(event, UNKNOWN)
        else:
            template.carried(neighbour, event, now_us)

    def _said(self, neighbour: str, said: Said, now_us: int) -> None:
        listener = self.templates.get(said.template) or self.services.get(said.template)
        if listener is not None:
            listener.said(neighbour, said.channel, said.body, now_us)


class _Context:
    """What one template sees of its node."""

    def __init__(self, overlay: Overlay, template: str) -> None:
        self.name = overlay.name
        self.incarnation = overlay.sending.incarnation
        self.map: Map = overlay.map
        self._overlay = overlay
        self._template = template

    def neighbours(self) -> list[str]:
        return self._overlay.used_neighbours()

    def say(self, neighbour: str, channel: str, body: bytes) -> None:
        self._overlay.say(neighbour, Said(self._template, channel, body))

    def pass_on(self, neighbour: str, event: Carried) -> None:
        self._overlay.pass_on(neighbour, msgspec.structs.replace(event, template=self._template))

    def carry(self, event: Carried, destinations: list[str], requirement: Requirement) -> None:
        self._overlay.publish(event, destinations, requirement)

    def deliver(self, event: Carried) -> None:
        self._overlay.deliver(event)

    def lose(self, event: Carried, cause: str) -> None:
        self._overlay.lose(event, cause)

    def definition(self, channel: str) -> ChannelDefinition | None:
        return self._overlay.registry.look_up(channel)

    def watch(self, kind: str, callback: Callable[[str, str, bytes | None], None]) -> None:
        self._overlay.store.watch(kind, callback)
