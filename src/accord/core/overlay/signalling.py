"""Messages for route set-up, and the transit events that travel on routes.

A route is one simple path from a source to a destination, with a number that its source never
reuses. `Establish` travels along the path and `Established` back; each node opens its forwarding
entry as the reply passes. A repeated `Establish` is a refresh: an entry without refreshes expires
(soft state, as RSVP's PATH and RESV).
"""

from __future__ import annotations

import msgspec


class Establish(msgspec.Struct, frozen=True, array_like=True, tag="establish"):
    """Sets up or refreshes `route` along `path`, from its source to its destination.

    `max_delay_us` is the maximum delay of its channels (0: any), `delays_us` the latency of each
    link when the path was computed: the delay budgets of the hops follow from them.
    """

    source: str
    route: int
    path: tuple[str, ...]
    max_delay_us: int = 0
    delays_us: tuple[int, ...] = ()


class Established(msgspec.Struct, frozen=True, array_like=True, tag="established"):
    source: str
    route: int


class NotEstablished(msgspec.Struct, frozen=True, array_like=True, tag="not established"):
    """The route does not exist, or no longer: node `at` could not continue it."""

    source: str
    route: int
    at: str
    reason: str


class TearDown(msgspec.Struct, frozen=True, array_like=True, tag="tear down"):
    source: str
    route: int


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge"):
    """Ack that travels back along `route`: cumulative up to `acked_through`, `bitmap` is a bitmap.

    The lowest bit of the first byte is for the number after `acked_through`.
    """

    source: str
    route: int
    destination: str
    incarnation: int
    acked_through: int
    bitmap: bytes = b""


class TemplateMessage(msgspec.Struct, frozen=True, array_like=True, tag="said"):
    """Message of a channel's template to its peer at a neighbour."""

    template: str
    channel: str
    body: bytes


class DeliverySequence(msgspec.Struct, frozen=True, array_like=True):
    """Sequence number of an event among those that `destination` acknowledges to its source.

    Events with numbers below `window_base` are acknowledged or abandoned and will not be sent
    again.
    """

    destination: str
    number: int
    window_base: int


class TransitEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """A transit event, with the routes that this copy follows.

    `number` is its sequence number at its source, `event` its ID there. `age_us` is the time since
    it was published, as far as known when it is sent: the time spent at nodes, plus the usual
    latency of links. `deadline_us` is the age at which it expires, 0 for never; `expiry_s` is the
    publisher's expiry, -1 if none. An event that `is_droppable` can be sent as a datagram. `trail`
    lists the nodes it has passed, each with its age there. An event with `follows_setup` follows
    routes that are still being set up, right behind their `Establish`. If a `template` is named, it
    decides at each node where the event goes, using its `header`. `child` is the child (secondary
    node) whose client published it, empty if its source's own, and `child_number` the event's ID
    there.
    """

    source: str
    incarnation: int
    number: int
    routes: tuple[int, ...]
    channel: str
    payload: bytes
    block: bytes = b""
    qos: int = 0
    is_retained: bool = False
    publisher: str = ""
    importance: int = 0
    event: int = 0
    expiry_s: int = -1
    age_us: int = 0
    deadline_us: int = 0
    sequences: tuple[DeliverySequence, ...] = ()
    is_droppable: bool = False
    trail: tuple[tuple[str, int], ...] = ()
    follows_setup: bool = False
    template: str = ""
    header: bytes = b""
    child: str = ""
    child_number: int = 0
