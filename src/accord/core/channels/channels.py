"""The templates of one node: which serves which channel, and isolation of their faults.

When a template raises an exception in a simulation, the exception propagates. A live node
continues. A third-party template is in an unknown state then: it is not called again, and
publishing to its channels is refused with the exception's text. A template that ships with Accord
stays in use, after a pause if its timers failed: otherwise one malformed message of a neighbour
would end all channels of a kind. Either way the driver finds the exception in `new` and reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from accord.core.channels.history.messages import is_persistent
from accord.core.channels.reliable import SLOW_MEMBERS, Reliable, stall_timeout_us
from accord.core.channels.routed import Local, Routed
from accord.core.channels.template import (
    COMPLETE,
    IN_ORDER,
    Context,
    Template,
    problem_with_options,
)
from accord.core.channels.total_order import TotalOrder
from accord.core.channels.tree_multicast import SingleSource, Unreliable
from accord.core.model.channels import MAX_CHANNEL_BYTES, filter_selects
from accord.core.model.errors import decode_or_none
from accord.core.model.units import NEVER_US
from accord.core.overlay.channel_directory import ChannelDefinition, ChannelTraits
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import TemplateMessage, TransitEvent

FAILED: Final = "template failed"
PAUSE_US: Final = 1_000_000
UNLOADED: Final = "it can't be loaded, its log says why"
_NEW: Final = 100  # failures held for the driver
_TEXT: Final = 200


class TemplateFailures:
    """`off` maps disabled templates to the text of what they raised."""

    def __init__(self, *, isolate_faults: bool) -> None:
        self.new: list[tuple[str, Exception]] = []
        self.disabled: dict[str, str] = {}
        self._isolates = isolate_faults
        self._paused: dict[str, int] = {}  # until when

    def record(self, template: str, error: Exception, *, disable: bool) -> None:
        """Record `error`, and disable the template if `disable`;

        Re-raise without fault isolation.
        """
        if not self._isolates:
            raise error
        if len(self.new) < _NEW:
            self.new.append((template, error))
        if disable:
            self.disabled[template] = f"{type(error).__name__}: {error}"[:_TEXT].removesuffix(": ")

    def pause(self, template: str, now_us: int) -> None:
        self._paused[template] = now_us + PAUSE_US

    def paused_us(self, template: str) -> int:
        """Until when the template's timers are ignored."""
        return self._paused.get(template, 0) if self._paused else 0

    def take(self) -> list[tuple[str, Exception]]:
        """Return and clear the new failures."""
        new, self.new = self.new, []
        return new


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
TEMPLATE: Final = "template"  # kind of state record: the templates installed at a node
_TEMPLATE_BYTES: Final = 4 << 10  # share of the node's state records reserved for this kind
_names: Final = msgspec.msgpack.Decoder(list[str])
_UNDEFINED: Final = ChannelDefinition(name="#")

# Returns the template class, or None if it cannot be loaded.
Load = Callable[[], type[Template] | None]
NONE: Final[Mapping[str, Load]] = {}
T = TypeVar("T", bound=Template)


class Channels:
    """Publishes events through the template of their channel.

    `installed` templates are loaded on first use. Each node announces the names of its templates.
    With `isolate_faults`, an exception in a template affects only that template's channels.
    """

    def __init__(
        self,
        overlay: Overlay,
        templates: Mapping[str, type[Template]] = SHIPPED,
        installed: Mapping[str, Load] = NONE,
        *,
        isolate_faults: bool = False,
    ) -> None:
        self.overlay = overlay
        self.failures = TemplateFailures(isolate_faults=isolate_faults)
        self._shipped = dict.fromkeys(templates, True)
        self.templates = {
            name: make(_Context(overlay, name)) for name, make in sorted(templates.items())
        }
        self.services: dict[str, Template] = {}
        # Persistent channels known before a restart, used until the current definitions are known.
        self.remembered: tuple[str, ...] = ()
        self.is_touched = False  # set by `publish`: the next deadline may be earlier
        self._installed = {name: installed[name] for name in installed if name not in templates}
        self._timed = self._find_timed()
        overlay.on_template_message = self._on_message
        overlay.on_template_event = self._on_event
        overlay.store.reserve(TEMPLATE, _TEMPLATE_BYTES)
        self._announce_templates()

    def names(self) -> list[str]:
        """Names of the templates that channels can be bound to at this node."""
        return sorted([*self.templates, *self._installed])

    def nodes_without(self, template: str) -> list[str]:
        """Nodes whose announced templates do not include this one."""
        records = self.overlay.store.all(TEMPLATE)
        return sorted(
            node
            for node, _, value in records
            if template not in (decode_or_none(_names, value) or ())
        )

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:
        """Return the first invalid option and why; None also if the template is not installed."""
        template = self._template(definition.template)
        if template is None:
            return None
        return problem_with_options(definition.options, template.options)

    def serve(self, name: str, make: Callable[[Context], T]) -> T:
        """Register a protocol that exchanges template messages with its peers, without channels."""
        assert name not in self.templates
        service = make(_Context(self.overlay, name))
        self.services[name] = service
        self._timed = self._find_timed()
        return service

    def publish(self, event: TransitEvent, destinations: list[str], now_us: int) -> None:
        """Send an event of a local client to the nodes that are interested in it."""
        self.overlay.now_us = now_us
        self.is_touched = True
        definition = self.overlay.directory.look_up(event.channel) or _UNDEFINED
        template = self._template(definition.template)
        if template is None:
            self._drop(event, definition.template)
            return
        try:
            template.on_published(event, destinations, definition, now_us)
        except Exception as error:
            self._on_failure(definition.template, error)
            self.overlay.drop(event, FAILED)

    def replay(self, event: TransitEvent, destinations: list[str], now_us: int) -> None:
        """Send a stored event to these nodes only, over routes, whatever the template."""
        self.overlay.now_us = now_us
        definition = self.overlay.directory.look_up(event.channel) or _UNDEFINED
        self.templates[ROUTED].on_published(event, destinations, definition, now_us)

    def feedback(self, event: TransitEvent, node: str, channel: str, now_us: int) -> None:
        """Send a local client's feedback on an event of `channel` to its source at `node`."""
        self.overlay.now_us = now_us
        definition = self.overlay.directory.look_up(channel) or _UNDEFINED
        template = self._template(definition.template) or self.templates[ROUTED]
        try:
            template.send_feedback(event, node, definition, now_us)
        except Exception as error:
            self._on_failure(definition.template, error)
            self.overlay.drop(event, FAILED)

    def knows(self, node: str) -> bool:
        """Whether the node is reachable or known to the link-state map."""
        known = self.overlay.map
        return known.is_reachable(self.overlay.name, node) or node in known.nodes()

    def channel_traits(self, channel: str) -> ChannelTraits:
        """Return what the channel's template requires of local publishers."""
        definition = self.overlay.directory.look_up(channel) or _UNDEFINED
        name = definition.template
        template = self._template(name)
        if template is None:
            return ChannelTraits(problem=self.problem_with(name, f" of {channel}"))
        is_kept = self.is_persistent(channel)
        keeps_order = is_kept or IN_ORDER in template.promises
        return ChannelTraits(
            template.delivers_own,
            _can_be_full(template),
            is_persistent=is_kept,
            keeps_order=keeps_order,
        )

    def problem_with(self, template: str, of_channel: str = "") -> str:
        """Load the template; return why nothing can be published through it here, or ""."""
        if self._template(template) is not None:
            return ""
        if why := self.failures.disabled.get(template):
            return f"the template {template}{of_channel} failed at {self.overlay.name}: {why}"
        return f"the template {template}{of_channel} is not installed at {self.overlay.name}"

    def is_persistent(self, channel: str) -> bool:
        """Whether every event of the channel is journalled, as far as is known yet."""
        definition = self.overlay.directory.look_up(channel)
        if definition is None:
            return any(filter_selects(each, channel) for each in self.remembered)
        return is_persistent(definition)

    def persistent_filters(self) -> list[str]:
        """Filters that select persistent channels, as far as is known."""
        defined = [each.name for each in self.overlay.directory.all() if is_persistent(each)]
        return list(dict.fromkeys((*defined, *self.remembered)))

    def has_room(self, channel: str) -> bool:
        """Whether local clients may publish more to the channel now."""
        definition = self.overlay.directory.look_up(channel) or _UNDEFINED
        template = self._template(definition.template)
        try:
            if template is None or not template.has_room(channel):
                return template is None
        except Exception as error:
            self._on_failure(definition.template, error)
            return True
        return COMPLETE not in template.promises or self.overlay.can_accept(channel)

    def unconfirmed(self, channel: str) -> list[int]:
        """Return the `event` numbers of local events that are not confirmed by all members.

        All templates are asked: the channel may have been bound to another one before.
        """
        found = list(self.overlay.sender.unacknowledged(channel))
        for name, template in list(self.templates.items()):
            try:
                found += template.unconfirmed(channel)
            except Exception as error:
                self._on_failure(name, error)
        return found

    def stall_timeout_us(self, channel: str) -> int:
        """How long a member that does not advance is waited for; 0 if events may be lost."""
        definition = self.overlay.directory.look_up(channel) or _UNDEFINED
        template = self._template(definition.template)
        is_promised = template is not None and COMPLETE in template.promises
        if not is_promised:
            return 0
        return (
            NEVER_US
            if definition.options.get(SLOW_MEMBERS) == "wait"
            else stall_timeout_us(definition)
        )

    def template_traits(self, name: str) -> ChannelTraits | None:
        """Return what a template requires of publishers; None if it is not installed."""
        template = self._template(name)
        if template is None:
            return None
        keeps_order = IN_ORDER in template.promises
        return ChannelTraits(template.delivers_own, _can_be_full(template), keeps_order=keeps_order)

    def is_in_order(self, channel: str) -> bool:
        """Whether events of one source arrive in publication order; feedback never does."""
        if channel.startswith("$"):
            return False
        template = self._template((self.overlay.directory.look_up(channel) or _UNDEFINED).template)
        return template is not None and IN_ORDER in template.promises

    def advance(self, now_us: int) -> None:
        self.overlay.advance(now_us)
        for name, each in self._timed:
            if self.failures.paused_us(name) > now_us:
                continue
            try:
                each.advance(now_us)
            except Exception as error:
                self._on_failure(name, error)
                self.failures.pause(name, now_us)

    def next_due_us(self) -> int:
        due_us = self.overlay.next_due_us()
        for name, each in self._timed:
            try:
                found_us = each.next_due_us()
                if found_us is not None and found_us < due_us:
                    due_us = min(due_us, max(found_us, self.failures.paused_us(name)))
            except Exception as error:
                self._on_failure(name, error)
        return due_us

    def check_invariants(self) -> None:
        self.overlay.check_invariants()
        for _, each in self._all():
            each.check_invariants()

    def _all(self) -> Iterator[tuple[str, Template]]:
        yield from self.templates.items()
        yield from self.services.items()

    def _find_timed(self) -> list[tuple[str, Template]]:
        """Templates and services that override `advance` or `next_due_us`."""
        return [
            (name, each)
            for name, each in self._all()
            if type(each).advance is not Template.advance
            or type(each).next_due_us is not Template.next_due_us
        ]

    def _template(self, name: str) -> Template | None:
        """Return the template, loading it if necessary; None if it is not installed."""
        known = self.templates.get(name)
        load = None if known is not None else self._installed.pop(name, None)
        if load is None:
            return known
        make = load()
        if make is None:
            self.failures.disabled[name] = UNLOADED
            self._announce_templates()
            return None
        try:
            known = make(_Context(self.overlay, name, self._on_failure))
        except Exception as error:
            self._on_failure(name, error)
            return None
        self.templates[name] = known
        self._timed = self._find_timed()
        return known

    def _on_failure(self, name: str, error: Exception) -> None:
        """Record an exception; a template that does not ship with Accord is disabled."""
        is_own = name in self._shipped or name in self.services
        self.failures.record(name, error, disable=not is_own)
        if not is_own:
            self.templates.pop(name, None)
            self._timed = self._find_timed()
            self._announce_templates()

    def _drop(self, event: TransitEvent, template: str) -> None:
        self.overlay.drop(event, FAILED if template in self.failures.disabled else UNKNOWN)

    def _announce_templates(self) -> None:
        self.overlay.store.put(TEMPLATE, "", msgspec.msgpack.encode(self.names()))

    def _on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        template = self._template(event.template)
        if template is None:
            self._drop(event, event.template)
            return
        try:
            template.on_event(neighbour, event, now_us)
        except Exception as error:
            self._on_failure(event.template, error)
            self.overlay.drop(event, FAILED)

    def _on_message(self, neighbour: str, message: TemplateMessage, now_us: int) -> None:
        listener = self.services.get(message.template) or self._template(message.template)
        if listener is None or len(message.channel) > MAX_CHANNEL_BYTES:
            return
        try:
            listener.on_message(neighbour, message.channel, message.body, now_us)
        except Exception as error:
            self._on_failure(message.template, error)


def _can_be_full(template: Template) -> bool:
    """Whether publishers may be paused."""
    return COMPLETE in template.promises or type(template).has_room is not Template.has_room


class _Context:
    """A template's view of its node;

    `on_failure` is called if one of its watch callbacks raises.
    """

    def __init__(
        self,
        overlay: Overlay,
        template: str,
        on_failure: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._on_failure = on_failure
        self._has_failed = False
        self.name = overlay.name
        self.incarnation = overlay.sender.incarnation
        self.map: LinkStateMap = overlay.map
        self._overlay = overlay
        self._template = template

    def neighbours(self) -> list[str]:
        return self._overlay.used_neighbours()

    def send_message(self, neighbour: str, channel: str, body: bytes) -> None:
        self._overlay.send_message(neighbour, TemplateMessage(self._template, channel, body))

    def forward(self, neighbour: str, event: TransitEvent) -> None:
        self._overlay.forward(neighbour, msgspec.structs.replace(event, template=self._template))

    def is_queued(self, neighbour: str, channel: str, source: str, number: int) -> bool:
        return self._overlay.is_waiting(neighbour, (self._template, channel, source, number))

    def send_routed(
        self, event: TransitEvent, destinations: list[str], requirement: Requirement
    ) -> None:
        self._overlay.publish(event, destinations, requirement)

    def can_accept(self, channel: str) -> bool:
        return self._overlay.can_accept(channel)

    def deliver(self, event: TransitEvent) -> None:
        self._overlay.deliver(event)

    def report_dropped(self, event: TransitEvent, cause: str, count: int = 1) -> None:
        self._overlay.drop(event, cause, count)

    def definition(self, channel: str) -> ChannelDefinition | None:
        return self._overlay.directory.look_up(channel)

    def watch(self, kind: str, callback: Callable[[str, str, bytes | None], None]) -> None:
        for node, key, value in list(self._overlay.store.all(kind)):
            callback(node, key, value)
        failed = self._on_failure
        if failed is None:
            self._overlay.store.watch(kind, callback)
            return

        def on_record(node: str, key: str, value: bytes | None) -> None:
            if not self._has_failed:
                try:
                    callback(node, key, value)
                except Exception as error:
                    self._has_failed = True
                    failed(self._template, error)

        self._overlay.store.watch(kind, on_record)
