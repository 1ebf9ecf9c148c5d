"""Negotiated quality at a running node: timers, measurements, requests and stored definitions.

Properties defined at run time are stored in the node's directory and announced to all nodes. Of the
mechanisms, this module applies the one that does not act on events: an additional path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from accord.core.broker.broker import Broker
from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.broker.quality_status import quality_status, quality_totals
from accord.core.channels.channels import ROUTED
from accord.core.channels.template import IN_ORDER, SAME_ORDER
from accord.core.monitoring.measurement_registry import (
    DELIVERED,
    IN_TIME,
    MeasuredLookup,
    subject_of,
)
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.quality.mechanisms import SHIPPED
from accord.core.quality.messages import ApplyMechanism, MechanismStep
from accord.core.quality.meters import ORDERED, SAME_FOR_ALL, UNORDERED
from accord.core.quality.negotiation import Negotiation, NegotiationOptions
from accord.core.quality.overlay_negotiation import SERVICE, OverlayNegotiation, TierNegotiation
from accord.core.quality.properties import Property, QualityError
from accord.core.quality.property_files import MAX_CHARACTERS, parse_properties, render_properties
from accord.core.quality.reactions import ProfileRef
from accord.core.quality.status import (
    PropertyStatus,
    QualityStatus,
    QualityTotals,
    property_statuses,
)
from accord.core.quality.strategies import Delivered, strategy_named
from accord.core.tiers.channel_cache import ChannelCache
from accord.runtime.connection_writer import clock_us
from accord.runtime.logs import get_log
from accord.runtime.overlay_service import OverlayService
from accord.runtime.secondary_service import SecondaryService
from accord.runtime.server import Server

log = get_log(__name__)

FOLDER: Final = "properties"
DEFINED: Final = "defined.properties"
FACT: Final = "property"
_MEASURE_S: Final = 1.0
_MAX_S: Final = 3_600.0
_STEPS: Final = 20  # due steps per call, before others get their turn
_MAX_PATHS: Final = 8
_OVER_PATHS: Final = ("second-path", "hurry-over-two-paths")


class QualityOptions(Struct, frozen=True, kw_only=True):
    """`properties` is a directory of definitions that are read at start."""

    strategy: str = "pareto"
    properties: Path | None = None
    reaction_timeout_ms: int = 5_000


class QualityService:
    """Created before durable state is restored, which may include expectations."""

    def __init__(  # noqa: PLR0913 (once per node)
        self,
        broker: Broker,
        server: Server,
        *,
        node: str,
        incarnation: int,
        data: Path | None,
        options: QualityOptions,
        measured: MeasuredLookup,
        is_leaf: bool = False,
    ) -> None:
        strategy_named(options.strategy)
        self._broker = broker
        self._server = server
        self._node = node
        self._file = None if data is None else data / FOLDER / DEFINED
        self._defined: dict[str, Property] = {}  # at run time, at this node
        self._net: OverlayService | None = None
        self._exchange: TierNegotiation | None = None
        self._paths: dict[int, str] = {}  # channel with an additional path, by reaction
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._measuring: asyncio.Task[None] | None = None
        negotiation = Negotiation(
            node,
            incarnation=incarnation,
            options=NegotiationOptions(
                strategy=options.strategy, mechanism_timeout_us=options.reaction_timeout_ms * 1_000
            ),
            is_leaf=is_leaf,
        )
        for name in _OVER_PATHS:
            negotiation.repository.remove(name)
        negotiation.engine.delivered_of = lambda profile: _delivered(measured, profile)
        self.quality = ClientNegotiation(broker, negotiation, clock_us)
        self._read_definitions(options.properties)
        broker.quality = self.quality

    def start(self) -> None:
        self._measuring = asyncio.create_task(self._measure_loop())

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.gather(self._measuring, return_exceptions=True)

    def join(self, net: OverlayService) -> None:
        """Negotiate with other nodes through the overlay."""
        self._net = net
        negotiation = self.quality.negotiation
        exchange = net.channels.serve(
            SERVICE, lambda context: OverlayNegotiation(context, negotiation, net.tiers)
        )
        self._attach(exchange, net.after)
        exchange.property_sync.on_definition = self._on_child_property
        self.quality.on_mechanism = self._add_path
        self.quality.on_withdraw = self._withdraw_path
        self.quality.monitor.order_of = self._order_of
        if not net.options.is_alone:
            self.quality.monitor.best_reliability = 100.0
            for mechanism in SHIPPED:
                if mechanism.name in _OVER_PATHS:
                    negotiation.repository.define(mechanism)
        net.overlay.store.watch(FACT, self._on_property)
        for property_ in self._defined.values():
            self._announce_property(property_)

    def join_parents(self, secondary: SecondaryService) -> None:
        """Negotiate with other nodes through the parents."""
        exchange = TierNegotiation(self.quality.negotiation, secondary.tiers)
        secondary.services.append(exchange)
        self._attach(exchange, secondary.after)
        exchange.property_sync.on_definition = self._adopt
        lookups = secondary.child.channel_cache
        self.quality.monitor.order_of = lambda channel: order_by(lookups, channel)
        for property_ in self._defined.values():
            self._announce_property(property_)

    def _attach(self, exchange: TierNegotiation, after: list[Callable[[], None]]) -> None:
        self._exchange = self.quality.tier_negotiation = exchange
        after.append(self._after_net)

    def turn(self) -> None:
        """Advance if the last turn of the event loop changed something."""
        if self.quality.may_be_due:
            self._run_due()

    # Status

    def status(self, pattern: str = "#") -> QualityStatus:
        return quality_status(self.quality, self._node, pattern)

    def totals(self) -> QualityTotals:
        return quality_totals(self.quality)

    def properties(self) -> list[PropertyStatus]:
        return property_statuses(self.quality.negotiation.registry)

    def define(self, properties: list[Property]) -> None:
        """Define properties for all nodes. Raises QualityError if one can't be defined."""
        self.quality.define(*properties)
        self._persist(properties)
        self._server.due()

    # Time

    def _run_due(self) -> None:
        """Run what is due, and set the timer for the next deadline."""
        quality = self.quality
        self._broker.context.now_ms = self._server.clock.now_ms()
        quality.may_be_due = False
        for _ in range(_STEPS):
            if quality.next_due_us() > clock_us():
                break
            quality.advance()
        quality.may_be_due = False
        self._set_timer(quality.next_due_us())

    def _set_timer(self, due_us: int) -> None:
        if self._timer is not None:
            if self._timer_us <= due_us:
                return  # the earlier timer sets the next one
            self._timer.cancel()
        self._timer_us = due_us
        delay_s = min(max(due_us - clock_us(), 0) / 1e6, _MAX_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._run_due()
        self._server.due()

    async def _measure_loop(self) -> None:
        """Evaluate measurements once a second."""
        while True:
            await asyncio.sleep(_MEASURE_S)
            now_ms = self._broker.context.now_ms = self._server.clock.now_ms()
            try:
                for _ in self.quality.monitor.measure():
                    await asyncio.sleep(0)
                self.quality.observe_actions(now_ms)
            except Exception as error:  # otherwise measuring would end for good
                log.failure("quality measurement: failed", error)
            if self.quality.may_be_due:
                self._server.due()

    # Other nodes

    def _after_net(self) -> None:
        if self._exchange is not None and self._exchange.notices:
            self.quality.handle_notices([])
            self._server.due()

    def _add_path(self, act: ApplyMechanism) -> None:
        if (
            act.step is not MechanismStep.ADD_PATH
            or self._net is None
            or act.reaction in self._paths
        ):
            return
        known = self._net.overlay.directory.look_up(act.channel)
        if known is not None and known.paths >= _MAX_PATHS:
            return
        self._paths[act.reaction] = act.channel
        self._widen(act.channel)

    def _withdraw_path(self, reaction: int) -> None:
        channel = self._paths.pop(reaction, None)
        if channel is not None:
            self._widen(channel)

    def _widen(self, channel: str) -> None:
        """One additional path per reaction."""
        assert self._net is not None
        more = sum(each == channel for each in self._paths.values())
        if problem := self._net.widen_channel(channel, more):
            log.warning("paths: not changed", channel=channel, problem=problem)

    def _order_of(self, channel: str) -> str:
        """The order the channel's template guarantees; several paths may reorder events."""
        definition = None if self._net is None else self._net.overlay.directory.look_up(channel)
        if definition is None or self._net is None:
            return ORDERED
        template = self._net.channels.templates.get(definition.template)
        promises = () if template is None else template.promises
        if SAME_ORDER in promises:
            return SAME_FOR_ALL
        if IN_ORDER in promises:
            return ORDERED
        return UNORDERED if promises or _is_unordered(definition) else ORDERED

    # Definitions

    def _read_definitions(self, folder: Path | None) -> None:
        """Raises QualityError for invalid configured definitions."""
        files = [] if folder is None else sorted(folder.glob("*.properties"))
        if folder is not None and not folder.is_dir():
            raise QualityError(str(folder), "expected a folder of property definitions")
        for file in files:
            try:
                for each in parse_properties(_read(file)):
                    self.quality.define(each)
            except QualityError as error:
                raise QualityError(f"{file}, {error.place}", error.problem) from None
        if self._file is None or not self._file.exists():
            return
        try:
            for each in parse_properties(_read(self._file)):
                self.quality.define(each)
                self._defined[each.name] = each
        except QualityError as error:
            log.warning(
                "property definitions: not readable", file=str(self._file), problem=str(error)
            )

    def _persist(self, defined: list[Property]) -> None:
        for each in defined:
            self._defined[each.name] = each
            self._announce_property(each)
        if self._file is None:
            return
        unfinished = self._file.with_suffix(".tmp")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(render_properties(list(self._defined.values())))
            unfinished.replace(self._file)
        except OSError as error:
            log.warning(
                "property definitions: not written", file=str(self._file), problem=str(error)
            )

    def _announce_property(self, property_: Property) -> None:
        text = render_properties([property_])
        if self._net is not None:
            self._net.overlay.store.put(FACT, property_.name, text.encode())
        if self._exchange is not None:
            self._exchange.property_sync.announce(property_.name, text)

    def _on_property(self, node: str, key: str, value: bytes | None) -> None:
        """On another node's definition; this node's own one of the same name takes precedence."""
        registry = self.quality.negotiation.registry
        if value is None or node == self._node or key in registry:
            return
        found = self._adopt(node, value.decode(errors="replace"))
        if self._exchange is not None:
            for each in found:
                self._exchange.property_sync.announce(each.name, render_properties([each]))

    def _on_child_property(self, node: str, text: str) -> None:
        """On a child's definition: announced to all nodes by this one."""
        for each in self._adopt(node, text):
            self._announce_property(each)

    def _adopt(self, node: str, text: str) -> list[Property]:
        """Returns the properties that were new."""
        registry = self.quality.negotiation.registry
        try:
            found = [each for each in parse_properties(text) if each.name not in registry]
            self.quality.define(*found)
        except QualityError as error:
            log.warning("property definition: rejected", node=node, problem=str(error))
            return []
        return found


def order_by(lookups: ChannelCache, channel: str) -> str:
    """The order guaranteed by the template, as reported by a parent."""
    definition = lookups.look_up(channel)
    if definition is None:
        return ORDERED
    bound = lookups.bound(channel)
    if bound is not None and bound.is_ordered:
        return SAME_FOR_ALL
    is_plain = definition.template == ROUTED and not _is_unordered(definition)
    return ORDERED if is_plain or (bound is not None and bound.keeps_order) else UNORDERED


def _delivered(measured: MeasuredLookup, profile: ProfileRef) -> Delivered:
    subject = subject_of(profile.publisher, profile.channel)
    in_time = measured("publisher", subject, IN_TIME)
    rate_hz = measured("publisher", subject, DELIVERED)
    return Delivered(1.0 if in_time is None else in_time, rate_hz or 0.0)


def _is_unordered(definition: ChannelDefinition) -> bool:
    """Whether events may be reordered on their way."""
    return definition.paths > 1 or definition.options.get("datagrams") == "true"


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise QualityError(str(file), f"can't be read: {error}") from None
