"""Messages of the reservation protocol, with soft state and hop-by-hop signalling as in RSVP.

A request has one leg per path by which events arrive: from the subscriber's node, its origin, to a
node with publishers. `Reserve` travels along the leg and collects each node's verdict;
`ReserveReply` returns them. Nodes that agreed hold the resources for a short time. `Refresh`,
repeated periodically, turns that into a lease and renews it; `RefreshAck` confirms it and names
nodes that no longer hold the reservation. `Release` ends it. Any message may be lost, duplicated or
late without harm: a reservation that is not refreshed expires.
"""

from __future__ import annotations

import msgspec


class ReservationId(msgspec.Struct, frozen=True, array_like=True):
    """Globally unique ID of a request; `incarnation` rises at each start of the origin."""

    origin: str
    incarnation: int
    number: int


class FlowSpec(msgspec.Struct, frozen=True, array_like=True):
    """What a reservation is for. With `is_full`, the first refusal ends the request."""

    channel: str
    where: str
    is_full: bool
    basis: str = "highest"
    event_bytes: int = 0
    measured_hz: float = -1.0  # below 0: unknown


class NodeVerdict(msgspec.Struct, frozen=True, array_like=True):
    """A node's verdict: agreed if `resource` is empty, otherwise the resource that is short."""

    node: str
    resource: str = ""
    of: str = ""
    requested: int = 0
    free: int = 0

    @property
    def is_agreed(self) -> bool:
        return not self.resource


class Reserve(msgspec.Struct, frozen=True, array_like=True, tag="admission ask"):
    """Requests a reservation along `path`; `replaces` are legs that it supersedes."""

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    flow_spec: FlowSpec
    verdicts: tuple[NodeVerdict, ...] = ()
    replaces: tuple[int, ...] = ()


class ReserveReply(msgspec.Struct, frozen=True, array_like=True, tag="admission answer"):
    """Returns the verdicts to the origin.

    `rate` is the total expected rate in thousandths of a hertz; below 0: not given.
    """

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    is_full: bool
    verdicts: tuple[NodeVerdict, ...]
    rate: int = -1


class Refresh(msgspec.Struct, frozen=True, array_like=True, tag="admission keep"):
    """Renews a reservation at `nodes`, which agreed.

    `missing` collects those of them that no longer hold it.
    """

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    sequence: int
    nodes: tuple[str, ...]
    missing: tuple[str, ...] = ()


class RefreshAck(msgspec.Struct, frozen=True, array_like=True, tag="admission kept"):
    """Acknowledges a refresh; `rate` as in `ReserveReply`. `sequence` 0: unsolicited."""

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    sequence: int
    missing: tuple[str, ...] = ()
    rate: int = -1


class Release(msgspec.Struct, frozen=True, array_like=True, tag="admission release"):
    """Ends a reservation along `path`."""

    request: ReservationId
    leg: int
    path: tuple[str, ...]


AdmissionMessage = Reserve | ReserveReply | Refresh | RefreshAck | Release
