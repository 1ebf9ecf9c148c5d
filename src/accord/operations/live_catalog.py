"""All live sets, and the requests of viewers. A module that declares sets is listed here."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from accord.operations import (
    live_admission,
    live_deliveries,
    live_node,
    live_quality,
    live_series,
    live_tables,
    net,
)
from accord.operations.live_set import LiveSet, Number, Stop, Watch, WatchError, declared_sets
from accord.operations.operation import RequestError, decoding_problem

LIVE_MODULES: Final = (
    live_admission, live_deliveries, live_node, live_quality, live_series, live_tables,
    net,
)  # fmt: skip
SETS: Final[dict[str, LiveSet]] = {each.name: each for each in declared_sets()}


class _Envelope(Struct, frozen=True):
    """What tells requests of viewers apart."""

    set: str | None = None
    watch: Number | None = None
    stop: Number | None = None


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_stops: Final = msgspec.json.Decoder(Stop)


def read_request(text: str) -> tuple[LiveSet, Watch] | Stop:
    """A viewer's request; raises WatchError."""
    number: int | None = None
    try:
        envelope = _envelopes.decode(text)
        if envelope.stop is not None:
            return _stops.decode(text)
        number = envelope.watch
        if number is None:
            raise RequestError(400, "expected the number of a watch", "watch")
        found = SETS.get(envelope.set or "")
        if found is None:
            problem = f"expected one of {', '.join(SETS)}"
            raise RequestError(404, problem, "set")
        return found, found.decode(text)
    except RequestError as error:
        raise WatchError(error, number) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WatchError(decoding_problem(error), number) from None
