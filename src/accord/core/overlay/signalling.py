"""What nodes say to each other about routes, and the events that travel on them.

A route is one simple path from a source to a destination, with a number that its source never gives
again. `Establish` travels along the path and `Established` back; every node notes the way on the
answer's way back. The same `Establish` again is a refresh: who hears none for a while forgets.
"""

from __future__ import annotations

import msgspec


class Establish(msgspec.Struct, frozen=True, array_like=True, tag="establish"):
    """Make way for `route` along `path`, from its source to its destination.

    `max_delay_us` is what the channels on it may take in all (0: any time), `delays_us` what each
    of its links took when it was computed: what hops may spend of the rest follows from them.
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
    """The way does not exist, or not any more: `at` could not go on, for that reason."""

    source: str
    route: int
    at: str
    reason: str


class TearDown(msgspec.Struct, frozen=True, array_like=True, tag="tear down"):
    source: str
    route: int


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge"):
    """Travels back along `route`: all up to `through` have come, and `beyond` as bits above it.

    The lowest bit of the first byte is for the number after `through`.
    """

    source: str
    route: int
    destination: str
    incarnation: int
    through: int
    beyond: bytes = b""


class TemplateMessage(msgspec.Struct, frozen=True, array_like=True, tag="said"):
    """What a channel's template says to itself at a neighbour."""

    template: str
    channel: str
    body: bytes


class DeliverySequence(msgspec.Struct, frozen=True, array_like=True):
    """The place of an event among those that `destination` acknowledges to its source.

    All with numbers below `base` are done with: nothing more is to come of them.
    """

    destination: str
    number: int
    base: int


class Carried(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """An event on its way, with the routes by which this copy goes.

    `number` counts the events of its source, `event` is what it is called there. `age_us` is how
    long ago it was published, as far as that is known when it is sent: what it waited at nodes,
    and what links usually take. `deadline_us` is the age at which it is of no use any more, 0 if
    it always is; `expiry_s` is the expiry its publisher gave, -1 if none. What `may_be_lost` can go
    by datagrams. `trail` are the nodes it has passed, each with its age there. What `is_early` goes
    by routes that are just being established, right behind the signal that asks for them. Where a
    `template` is named, that one decides at each node where it goes, by what it noted in `note`.
    `origin` is the secondary node whose client published it, if it is none of its source's own,
    and `original` what it is called there.
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
    receipts: tuple[DeliverySequence, ...] = ()
    may_be_lost: bool = False
    trail: tuple[tuple[str, int], ...] = ()
    is_early: bool = False
    template: str = ""
    note: bytes = b""
    origin: str = ""
    original: int = 0
