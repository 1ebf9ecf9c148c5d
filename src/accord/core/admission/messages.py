"""What nodes say to each other about subscriptions that are to be carried.

A request has a leg for each way by which events come: a path from the subscriber's node, its
origin, to a node with publishers. `Reserve` travels along it and gathers what each node says;
`ReserveReply` brings that back. Nodes that said yes hold what is needed for a while. `Refresh`
turns it into a promise, and said again from time to time lets it last; `RefreshAck` confirms, and
names nodes that have forgotten. `Release` ends it. Every message can be lost, repeated or late
without harm: who hears nothing forgets in time.
"""

from __future__ import annotations

import msgspec


class ReservationId(msgspec.Struct, frozen=True, array_like=True):
    """Nobody gives the same again: `incarnation` rises each time the origin is started."""

    origin: str
    incarnation: int
    number: int


class FlowSpec(msgspec.Struct, frozen=True, array_like=True):
    """What is to be carried. With `is_full`, the first refusal ends it."""

    channel: str
    where: str
    is_full: bool
    basis: str = "highest"
    event_bytes: int = 0
    measured_hz: float = -1.0  # below 0: not known


class NodeVerdict(msgspec.Struct, frozen=True, array_like=True):
    """What a node said: yes, where `resource` is empty; else of what it has too little."""

    node: str
    resource: str = ""
    of: str = ""
    asked: int = 0
    free: int = 0

    @property
    def is_yes(self) -> bool:
        return not self.resource


class Reserve(msgspec.Struct, frozen=True, array_like=True, tag="admission ask"):
    """`replaces` are legs by which events came before, and will not any more."""

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    wish: FlowSpec
    verdicts: tuple[NodeVerdict, ...] = ()
    replaces: tuple[int, ...] = ()


class ReserveReply(msgspec.Struct, frozen=True, array_like=True, tag="admission answer"):
    """`rate` is all that is to be expected, in thousandths of a hertz; below 0: not said."""

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    is_full: bool
    verdicts: tuple[NodeVerdict, ...]
    rate: int = -1


class Refresh(msgspec.Struct, frozen=True, array_like=True, tag="admission keep"):
    """`nodes` are those that said yes; `lost` those of them, so far, that hold nothing any more."""

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    sequence: int
    nodes: tuple[str, ...]
    lost: tuple[str, ...] = ()


class RefreshAck(msgspec.Struct, frozen=True, array_like=True, tag="admission kept"):
    """`rate` as in `ReserveReply`; `sequence` 0: nobody asked."""

    request: ReservationId
    round: int
    leg: int
    path: tuple[str, ...]
    sequence: int
    lost: tuple[str, ...] = ()
    rate: int = -1


class Release(msgspec.Struct, frozen=True, array_like=True, tag="admission release"):
    request: ReservationId
    leg: int
    path: tuple[str, ...]


AdmissionMessage = Reserve | ReserveReply | Refresh | RefreshAck | Release
