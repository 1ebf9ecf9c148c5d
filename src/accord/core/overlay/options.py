"""Options of a node in the overlay: timers, limits, and rules that select transports.

The rules of a site select the transport for the events of a channel. The first rule that selects a
channel applies; without one, events that may be lost are sent as datagrams and all others over TCP.
No rule makes delivery less reliable than required: events with QoS 1 or 2 stay on TCP, unless their
template declares that they may be lost, or itself retransmits what links lose. Events kept on TCP
against a rule are counted, for operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from accord.core.model.channels import filter_selects
from accord.core.model.locations import Location
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.status import TransportStatus


class OverlayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in microseconds, sizes in bytes."""

    ping_us: int = 1_000_000
    ping_bytes_per_s: int = 0  # allowance for the pings of all neighbours; 0: unlimited
    refresh_us: int = 5_000_000  # refresh interval of routes
    idle_us: int = 120_000_000  # idle timeout of routes
    advertise_us: int = 50_000  # minimum interval between announcements of a link's state
    advertise_slowly_us: int = 10_000_000  # the same for small changes
    acknowledge_us: int = 20_000  # delay of acks, to send one for many events
    delivery_timeout_us: int = (
        60_000_000  # unacknowledged events, or events without route, time out
    )
    transit_bytes: int = 16 << 20  # outbox of one neighbour
    unacknowledged_bytes: int = 16 << 20  # retransmission buffer of one destination
    held_bytes: int = 1 << 20  # events of one flow that wait for its first route
    absent_us: int = 86_400_000_000  # records of an unreachable node expire
    publish_flows_us: int = 200_000  # minimum interval between publications of flows; 0: never
    publish_arrivals_us: int = 2_000_000  # the same for arrival counts
    location: Location | None = None  # where this node is; others learn it
    # Configured probabilities of failure, by neighbour and by node; others are measured.
    link_failures: dict[str, float] = {}
    node_failures: dict[str, float] = {}


TCP: Final = "tcp"
UDP: Final = "udp"
MULTICAST: Final = "multicast"
TRANSPORTS: Final = (TCP, UDP, MULTICAST)
_REMEMBERED: Final = 4_096  # channels
_NONE: Final = -1


class TransportRule(msgspec.Struct, frozen=True):
    """Filters of channels, and the transport they use where possible."""

    channels: tuple[str, ...]
    transport: str


class TransportSelector:
    """Applies the rules; `repairs` returns whether a template retransmits what links lose."""

    def __init__(
        self, rules: Sequence[TransportRule] = (), repairs: Callable[[str], bool] | None = None
    ) -> None:
        for rule in rules:
            if rule.transport not in TRANSPORTS:
                raise ValueError(f"transport: expected one of {TRANSPORTS}, got {rule.transport}")
        self.rules = tuple(rules)
        self._repairs = repairs
        self._by_channel: dict[str, int] = {}
        self._copies = [0] * len(rules)
        self._kept = [0] * len(rules)

    def select(self, event: TransitEvent, copies: int = 1) -> str:
        """Transport of an event from here to `copies` neighbours."""
        number = self._rule(event.channel) if self.rules else _NONE
        if number == _NONE:
            return UDP if event.is_droppable else TCP
        transport = self.rules[number].transport
        if transport != TCP and not self._is_droppable(event):
            self._kept[number] += copies
            return TCP
        self._copies[number] += copies
        return transport

    def status(self) -> tuple[TransportStatus, ...]:
        return tuple(
            TransportStatus(
                channels=rule.channels, transport=rule.transport, copies=copies, kept=kept
            )
            for rule, copies, kept in zip(self.rules, self._copies, self._kept, strict=True)
        )

    def check_invariants(self) -> None:
        assert len(self._by_channel) <= _REMEMBERED
        assert all(_NONE <= each < len(self.rules) for each in self._by_channel.values())

    def _is_droppable(self, event: TransitEvent) -> bool:
        if event.is_droppable or event.qos == 0:
            return True
        return bool(event.template) and self._repairs is not None and self._repairs(event.template)

    def _rule(self, channel: str) -> int:
        found = self._by_channel.get(channel)
        if found is None:
            if len(self._by_channel) >= _REMEMBERED:
                self._by_channel.clear()
            found = self._by_channel[channel] = self._find(channel)
        return found

    def _find(self, channel: str) -> int:
        for number, rule in enumerate(self.rules):
            if any(filter_selects(pattern, channel) for pattern in rule.channels):
                return number
        return _NONE
