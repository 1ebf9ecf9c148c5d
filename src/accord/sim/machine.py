"""Interfaces of what the simulator runs: pure state machines that get values and the time.

A *machine* exchanges messages with its neighbours. Control messages are put into `sends` as
objects, and arrive as such. Data waits in the machine until the link can take it: a neighbour in
`ready` has some, and `take` returns it as frames, each of which arrives as `bytes`. The driver
empties both lists. A *node* is a machine that clients use, too: a workload subscribes and publishes
there, and finds what arrived for each client in `deliveries`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Protocol

from msgspec import Struct

from accord.core.model.values import Value
from accord.journal.faults import FaultDisk

NUMBER_BYTES: Final = 8  # at the start of each payload, to identify a delivery


class Machine(Protocol):
    """A participant of a protocol."""

    @property
    def sends(self) -> list[tuple[str, Any]]:
        """Neighbours, each with a message to it, in sending order."""

    @property
    def ready(self) -> list[str]:
        """Neighbours with newly queued data; may include one that no longer has any."""

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        """Frames of data, of about so many bytes; none if no data is queued."""

    def receive(self, neighbour: str, message: Any, now_us: int) -> None: ...

    def advance(self, now_us: int) -> None:
        """Do what is due."""

    def next_due_us(self) -> int | None: ...

    def link_up(self, neighbour: str, now_us: int) -> None: ...

    def link_down(self, neighbour: str, now_us: int) -> None: ...

    def check_invariants(self) -> None:
        """Raise AssertionError if an invariant is violated."""


class Publication(Struct, frozen=True):
    """An event as a client passes it to its node.

    The payload starts with `number`, which counts all publications of a run; `sequence` counts
    those of one publisher from 1.
    """

    number: int
    publisher: str
    node: str
    channel: str
    sequence: int
    published_us: int
    payload: bytes
    attributes: Mapping[str, Value] = {}
    qos: int = 0
    deadline_us: int = 0  # from publishing; 0 for none


class SimSubscription(Struct, frozen=True):
    """A subscription of a client."""

    subscriber: str
    node: str
    filter: str
    where: str = ""
    xpath: str = ""
    qos: int = 0


class Delivery(Struct, frozen=True):
    """An event that a node delivered to one of its clients."""

    subscriber: str
    payload: bytes


class ChannelSpec(Struct, frozen=True):
    """Requirements on the channels that `filter` selects."""

    filter: str
    max_delay_us: int = 0  # 0 for unlimited
    paths: int = 1
    resiliency: float = 0.0


class Node(Machine, Protocol):
    """A machine that clients use."""

    @property
    def deliveries(self) -> list[Delivery]: ...

    def publish(self, publication: Publication, now_us: int) -> None: ...

    def subscribe(self, subscription: SimSubscription, now_us: int) -> None: ...

    def unsubscribe(self, subscription: SimSubscription, now_us: int) -> None: ...


class Start(Struct, frozen=True):
    """The inputs from which a machine is built at each start of its node.

    `incarnation` is the wall clock in ms and larger at each start; `disk` holds what survived.
    """

    name: str
    now_us: int
    incarnation: int
    neighbours: tuple[str, ...]
    random: Random
    disk: FaultDisk
    channels: tuple[ChannelSpec, ...] = ()


Make = Callable[[Start], Machine]


def number_of(payload: bytes) -> int:
    """The number of the publication a payload belongs to; 0 if none."""
    return int.from_bytes(payload[:NUMBER_BYTES]) if len(payload) >= NUMBER_BYTES else 0


def payload_of(number: int, size: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES).ljust(size, b"\0")
