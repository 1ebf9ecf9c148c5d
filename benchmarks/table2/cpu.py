"""The first half: 40 subscribers with predicates, three publishers at full speed, one core.

Every event has XML metadata and matches one subscriber; to know which, the node evaluates the
XPath conditions of all, which no index can answer. The important channel has a publisher of its
own, steady and well below what the node could do; before, the same publisher is measured alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.options import progress
from benchmarks.table2.figures import Figures, figures
from benchmarks.table2.nodes import (
    ALL,
    FIFO,
    IMPORTANT,
    NORMAL,
    STRICT,
    WEIGHTED,
    Contender,
    NoPoliciesError,
    running,
)
from benchmarks.table2.plans import Audience, Flow
from benchmarks.table2.trial import Seen, Timing, Trial

SUBSCRIBERS: Final = 40
PUBLISHERS: Final = 3
CONTENDERS: Final = (FIFO, WEIGHTED, STRICT)
SHARE_OF_CAPACITY: Final = 0.15
_PAYLOAD_BYTES: Final = 200
_WAYPOINTS: Final = 12
_HOST: Final = "127.0.0.1"
_CALIBRATION: Final = Timing(2.0, 4.0, 0.0)


@dataclass
class Loaded:
    """A contender under load: both channels, and how many cores it used in each trial."""

    important: Figures = field(default_factory=Figures)
    normal: Figures = field(default_factory=Figures)
    busy: list[float] = field(default_factory=list)


@dataclass
class Half:
    """All that was found out."""

    capacity_hz: float = 0.0
    offered_hz: float = 0.0
    unloaded: Figures = field(default_factory=Figures)
    unloaded_busy: list[float] = field(default_factory=list)
    loaded: dict[str, Loaded] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Effort:
    rounds: int
    timing: Timing


FULL: Final = Effort(3, Timing(2.0, 12.0, 2.0))
QUICK: Final = Effort(1, Timing(1.5, 6.0, 1.5))


def measure(effort: Effort, stop: threading.Event) -> Half:
    half = Half()

    def hold(contender: Contender, flows: Callable[[int], list[Flow]], timing: Timing) -> Seen:
        with running(contender) as node:
            node.manage(contender)
            audience = Audience(host=_HOST, port=node.port, topic=ALL, predicates=predicates())
            return Trial(audience, flows(node.port), timing, stop=stop).run(node)

    progress("cpu: how much the node can do")
    seen = hold(FIFO, lambda port: _crowd(port, _CALIBRATION), _CALIBRATION)
    # Others may use the machine too, now or later.
    half.capacity_hz = figures(seen, NORMAL).rate_hz / seen.busy
    half.offered_hz = SHARE_OF_CAPACITY * half.capacity_hz
    contenders = list(CONTENDERS)
    timing = effort.timing

    def important(port: int) -> list[Flow]:
        return [_important(port, half.offered_hz, timing)]

    for turn in range(effort.rounds):
        progress(f"cpu: round {turn + 1} of {effort.rounds}, unloaded")
        seen = hold(FIFO, important, timing)
        half.unloaded.add(figures(seen, IMPORTANT))
        half.unloaded_busy.append(seen.busy)
        for contender in tuple(contenders):
            progress(f"cpu: round {turn + 1} of {effort.rounds}, {contender.name}")
            try:
                seen = hold(contender, lambda port: important(port) + _crowd(port, timing), timing)
            except NoPoliciesError as error:
                half.absent.append(f"Left out: {contender.name}, {error}.")
                contenders.remove(contender)
                continue
            loaded = half.loaded.setdefault(contender.name, Loaded())
            loaded.important.add(figures(seen, IMPORTANT))
            loaded.normal.add(figures(seen, NORMAL))
            loaded.busy.append(seen.busy)
    return half


def predicates() -> tuple[str, ...]:
    """One for each subscriber: a selector, and an XPath condition with functions and a position."""
    return tuple(
        "payload_kind = 'report' AND XPATH '"
        "count(/report/route/waypoint[lat > 46.02]) > 3 and "
        f'substring-after(string(/report/area/cell[2]), "c-") = "{number + SUBSCRIBERS}"\''
        for number in range(SUBSCRIBERS)
    )


def documents() -> tuple[str, ...]:
    """One that each subscriber's predicate is true of, about 900 bytes each."""
    return tuple(_document(number) for number in range(SUBSCRIBERS))


def _document(number: int) -> str:
    waypoints = "".join(
        f"<waypoint n='{place}'><name>wp-{(7 * place + number) % 60}</name>"
        f"<lat>{46 + place / 100}</lat></waypoint>"
        for place in range(_WAYPOINTS)
    )
    cells = f"<cell>c-{number}</cell><cell>c-{number + SUBSCRIBERS}</cell>"
    kind = "<payload_kind>report</payload_kind>"
    return f"<report>{kind}<area>{cells}</area><route>{waypoints}</route></report>"


def _important(port: int, rate_hz: float, timing: Timing) -> Flow:
    return Flow(
        number=0,
        name="important",
        host=_HOST,
        port=port,
        topic=IMPORTANT,
        sizes=(_PAYLOAD_BYTES,),
        metadata=documents(),
        bytes_per_s=rate_hz * _PAYLOAD_BYTES,
        seconds=timing.seconds,
        is_first=True,
    )


def _crowd(port: int, timing: Timing) -> list[Flow]:
    return [
        Flow(
            number=number,
            name=f"normal-{number}",
            host=_HOST,
            port=port,
            topic=NORMAL,
            sizes=(_PAYLOAD_BYTES,),
            metadata=_turned(documents(), 13 * number),
            window=1_000,
            seconds=timing.seconds,
        )
        for number in range(1, PUBLISHERS + 1)
    ]


def _turned(texts: Sequence[str], places: int) -> tuple[str, ...]:
    places %= len(texts)
    return (*texts[places:], *texts[:places])
