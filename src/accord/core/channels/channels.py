"""Which template serves which channel, at one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from accord.core.channels.local import Local
from accord.core.channels.multicast import SingleSource, Unreliable
from accord.core.channels.persistent.options import is_persistent
from accord.core.channels.reliable import LAGGARDS, Reliable, patience_us
from accord.core.channels.routed import Routed
from accord.core.channels.streams.stream import NEVER
from accord.core.channels.template import ALL, IN_ORDER, Context, Template
from accord.core.channels.total_order import TotalOrder
from accord.core.model.channels import filter_selects
from accord.core.overlay.binding import Bound
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
TEMPLATE: Final = "template"  # the kind of fact: which are installed at a node
_UNDEFINED: Final = ChannelDefinition(name="#")

# Gives the template, or None where it turns out that it can't be had.
Load = Callable[[], type[Template] | None]
NONE: Final[Mapping[str, Load]] = {}
T = TypeVar("T", bound=Template)


class Channels:
    """Publishes through templates; those that are only `installed` are loaded when one is needed.

    `missing` counts events whose template is not installed. All nodes tell which they have.
    """

    def __init__(
        self,
        overlay: Overlay,
        templates: Mapping[str, type[Template]] = SHIPPED,
        installed: Mapping[str, Load] = NONE,
    ) -> None:
        self.overlay = overlay
        self.templates = {
            name: make(_Context(overlay, name)) for name, make in sorted(templates.items())
        }
        self.services: dict[str, Template] = {}
        self.missing: dict[str, int] = {}
        # Persistent channels from before a start, until it is known what is defined now.
        self.remembered: tuple[str, ...] = ()
        self.is_touched = False  # something was published: what is due may be earlier
        self._installed = {name: installed[name] for name in installed if name not in templates}
        self._timed = self._find_timed()
        overlay.on_said = self._said
        overlay.on_carried = self._carried
        self._tell()

    def names(self) -> list[str]:
        """The templates that channels can be bound to at this node."""
        return sorted([*self.templates, *self._installed])

    def nodes_without(self, template: str) -> list[str]:
        """The nodes, as far as they have told, where it is not installed."""
        told = self.overlay.store.all(TEMPLATE)
        return sorted(node for node, _, value in told if template not in _decoded(value))

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
        self.is_touched = True
        definition = self.overlay.registry.look_up(event.channel) or _UNDEFINED
        template = self._template(definition.template)
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

    def feedback(self, event: Carried, node: str, channel: str, now_us: int) -> None:
        """An answer of a local client to an event of `channel`, whose source is at `node`."""
        self.overlay.now_us = now_us
        definition = self.overlay.registry.look_up(channel) or _UNDEFINED
        template = self._template(definition.template) or self.templates[ROUTED]
        template.feedback(event, node, definition, now_us)

    def knows(self, node: str) -> bool:
        """Whether there is such a node, as far as is known here."""
        known = self.overlay.map
        return known.is_reachable(self.overlay.name, node) or node in known.nodes()

    def bound(self, channel: str) -> Bound:
        """What its template asks of whoever publishes to it here."""
        definition = self.overlay.registry.look_up(channel) or _UNDEFINED
        name = definition.template
        template = self._template(name)
        if template is None:
            problem = f"the template {name} of {channel} is not installed at {self.overlay.name}"
            return Bound(problem=problem)
        is_kept = self.is_persistent(channel)
        keeps_order = is_kept or IN_ORDER in template.promises
        return Bound(
            template.delivers_own,
            _can_be_full(template),
            is_persistent=is_kept,
            keeps_order=keeps_order,
        )

    def is_persistent(self, channel: str) -> bool:
        """Whether all that is published to it is kept, as far as is known yet."""
        definition = self.overlay.registry.look_up(channel)
        if definition is None:
            return any(filter_selects(each, channel) for each in self.remembered)
        return is_persistent(definition)

    def has_room(self, channel: str) -> bool:
        """Whether local clients may publish more to it now."""
        definition = self.overlay.registry.look_up(channel) or _UNDEFINED
        template = self._template(definition.template)
        if template is None or not template.has_room(channel):
            return template is None
        return ALL not in template.promises or self.overlay.takes(channel)

    def unsettled(self, channel: str) -> list[int]:
        """Events that were published here, by their `event`, and some member may still lack.

        Whichever template has them: the channel may have been bound to another one before.
        """
        found = list(self.overlay.sending.unacknowledged(channel))
        for template in self.templates.values():
            found += template.unsettled(channel)
        return found

    def patience_us(self, channel: str) -> int:
        """How long a member that gets nothing is waited for; 0 where events may be lost."""
        definition = self.overlay.registry.look_up(channel) or _UNDEFINED
        template = self._template(definition.template)
        is_promised = template is not None and ALL in template.promises
        if not is_promised:
            return 0
        return NEVER if definition.options.get(LAGGARDS) == "wait" else patience_us(definition)

    def trait(self, name: str) -> Bound | None:
        """What a template asks of whoever publishes; None where it is not installed."""
        template = self._template(name)
        if template is None:
            return None
        keeps_order = IN_ORDER in template.promises
        return Bound(template.delivers_own, _can_be_full(template), keeps_order=keeps_order)

    def is_in_order(self, channel: str) -> bool:
        """Whether what one source publishes to it comes in that order; answers do not."""
        if channel.startswith("$"):
            return False
        template = self._template((self.overlay.registry.look_up(channel) or _UNDEFINED).template)
        return template is not None and IN_ORDER in template.promises

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

    def _template(self, name: str) -> Template | None:
        """Loaded if it was not yet; None where it is not installed."""
        known = self.templates.get(name)
        load = None if known is not None else self._installed.pop(name, None)
        if load is None:
            return known
        make = load()
        if make is not None:
            known = self.templates[name] = make(_Context(self.overlay, name))
            self._timed = self._find_timed()
        else:
            self._tell()
        return known

    def _tell(self) -> None:
        self.overlay.store.put(TEMPLATE, "", msgspec.msgpack.encode(self.names()))

    def _carried(self, neighbour: str, event: Carried, now_us: int) -> None:
        template = self._template(event.template)
        if template is None:
            self.overlay.lose(event, UNKNOWN)
        else:
            template.carried(neighbour, event, now_us)

    def _said(self, neighbour: str, said: Said, now_us: int) -> None:
        listener = self.services.get(said.template) or self._template(said.template)
        if listener is not None:
            listener.said(neighbour, said.channel, said.body, now_us)


def _can_be_full(template: Template) -> bool:
    """Whether publishers may have to wait."""
    return ALL in template.promises or type(template).has_room is not Template.has_room


def _decoded(value: bytes) -> list[str]:
    try:
        return msgspec.msgpack.decode(value, type=list[str])
    except msgspec.DecodeError:
        return []


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

    def takes(self, channel: str) -> bool:
        return self._overlay.takes(channel)

    def deliver(self, event: Carried) -> None:
        self._overlay.deliver(event)

    def lose(self, event: Carried, cause: str) -> None:
        self._overlay.lose(event, cause)

    def definition(self, channel: str) -> ChannelDefinition | None:
        return self._overlay.registry.look_up(channel)

    def watch(self, kind: str, callback: Callable[[str, str, bytes | None], None]) -> None:
        for node, key, value in list(self._overlay.store.all(kind)):
            callback(node, key, value)
        self._overlay.store.watch(kind, callback)
