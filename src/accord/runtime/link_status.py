"""Status of a node's links, for operators and metrics."""

from __future__ import annotations

from msgspec import Struct

from accord.core.links.options import LinkTraffic
from accord.core.overlay.status import RefusedLinkStatus
from accord.runtime.dialler import DialStatus
from accord.runtime.multicast_links import MulticastStatus
from accord.runtime.neighbour_link import NeighbourLink


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
