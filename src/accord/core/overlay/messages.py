"""What neighbours say to each other, apart from routes and the events on them."""

from __future__ import annotations

import msgspec


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """To be answered at once; `sent_us` is of the sender's clock, and nobody else's business."""

    number: int
    sent_us: int


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """The answer, with the same fields."""

    number: int
    sent_us: int
