"""Links of a backbone node to secondary nodes, beside those of the overlay.

Status of a node's links, for operators and metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.broker.child_bridge import ChildBridge
from accord.core.broker.overlay_bridge import OverlayBridge
from accord.core.links.options import LinkTraffic
from accord.core.model.units import NEVER_US
from accord.core.overlay.overlay import Message
from accord.core.overlay.status import ChildStatus, RefusedLinkStatus
from accord.core.overlay.tier_links import TierLinks
from accord.core.tiers.child_name_conflicts import ChildNameConflicts
from accord.core.tiers.messages import DownstreamEvent, FromChild, FromParent
from accord.core.tiers.parent import Parent
from accord.runtime.connection_writer import clock_us
from accord.runtime.dialler import DialStatus
from accord.runtime.fault_isolation import FAILED
from accord.runtime.logs import get_log
from accord.runtime.multicast_links import MulticastStatus
from accord.runtime.neighbour_link import NeighbourLink

log = get_log(__name__)

# All messages of a link: a backbone node has neighbours of both tiers.
LinkMessage = Message | FromChild | FromParent
_encode: Final = msgspec.msgpack.Encoder().encode


class ChildLinks:
    """Neighbours that are secondary nodes; `set_clock` is called before events are handled."""

    def __init__(
        self,
        bridge: OverlayBridge,
        incarnation: int,
        set_clock: Callable[[], None],
        tiers: TierLinks,
    ) -> None:
        self._bridge = bridge
        self._children = ChildBridge(bridge, incarnation, clock_us, tiers)
        self._parent: Parent = self._children.parent
        self._linked: dict[str, bool] = {}
        self._set_clock = set_clock
        assert bridge.channels is not None
        overlay = bridge.channels.overlay
        self.name_conflicts = ChildNameConflicts(overlay.store, overlay.map)
        bridge.children = self._children

    def __contains__(self, neighbour: str) -> bool:
        return neighbour in self._linked

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return list(self._parent.sends)

    def clear_sends(self) -> None:
        self._parent.sends.clear()

    def has_work(self) -> bool:
        return bool(self._parent.sends or self._parent.ready)

    def link_up(self, child: str, now_us: int) -> None:
        self._linked[child] = True
        self._parent.link_up(child, now_us)

    def link_down(self, child: str, now_us: int) -> None:
        del self._linked[child]
        self._parent.link_down(child, now_us)

    def receive(self, child: str, message: Any, now_us: int) -> None:
        self._set_clock()
        try:
            self._parent.receive(child, message, now_us)
        except Exception:
            self._bridge.broker.context.counters.count_shed(FAILED, child)
            raise

    def take(self, child: str, bytes_wanted: int) -> list[bytes]:
        self._parent.ready.clear()  # all links are polled anyway
        taken = self._parent.take(child, bytes_wanted, clock_us())
        if taken:
            self._set_clock()
            for each in taken:
                if isinstance(each, DownstreamEvent):
                    self._bridge.on_sent(child, each.event)
        return [_encode(each) for each in taken]

    def advance(self, now_us: int) -> None:
        self._set_clock()
        self._parent.retry_upstream(now_us)
        self._parent.advance(now_us)
        losses = list(self._parent.drops)
        self._parent.drops.clear()
        for event, _, cause in losses:
            self._bridge.on_dropped(event, cause)
        linked = {child: self._parent.incarnation_of(child) for child in self._linked}
        known = {child: incarnation for child, incarnation in linked.items() if incarnation}
        for problem in self.name_conflicts.update(known, now_us):
            log.warning("node name: conflict", problem=problem)

    def next_due_us(self) -> int:
        due_us = self._parent.next_due_us()
        return NEVER_US if due_us is None else due_us

    def status(self) -> tuple[ChildStatus, ...]:
        problems = self.name_conflicts.problems
        return tuple(
            msgspec.structs.replace(each, problem=problems.get(each.name, ""))
            for each in self._parent.status()
        )


class LinkConnectionStatus(Struct, frozen=True, kw_only=True):
    """A link that is up. Rates are 0 while unknown; loss is of datagrams."""

    node: str
    address: str
    is_dialed: bool
    is_encrypted: bool
    version: int
    incarnation: int
    up_us: int
    rtt_ms: int
    rate_bps: int
    outstanding_bytes: int
    datagrams_lost: int
    datagram_loss: float
    traffic: LinkTraffic


class NeighboursStatus(Struct, frozen=True, kw_only=True):
    """`traffic` is the total since the start; `unsent` counts messages without a link."""

    links: tuple[LinkConnectionStatus, ...]
    dials: tuple[DialStatus, ...]
    traffic: LinkTraffic
    refused: int
    unsent: int
    refusals: tuple[RefusedLinkStatus, ...] = ()
    group: MulticastStatus | None = None


def link_status(link: NeighbourLink) -> LinkConnectionStatus:
    session = link.session
    assert session is not None
    assert session.neighbour is not None
    datagrams = session.datagrams
    return LinkConnectionStatus(
        node=link.node,
        address=session.remote.address,
        is_dialed=link.is_dialer,
        is_encrypted=session.remote.is_encrypted,
        version=session.neighbour.version,
        incarnation=session.neighbour.incarnation,
        up_us=link.up_us,
        rtt_ms=link.link.rtt_ms,
        rate_bps=link.link.rate_bps,
        outstanding_bytes=link.link.outstanding_bytes,
        datagrams_lost=0 if datagrams is None else datagrams.opener.lost,
        datagram_loss=0.0 if datagrams is None else datagrams.loss,
        traffic=session.traffic,
    )
