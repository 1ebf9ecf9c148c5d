"""The second half: more than a link of 300 kbit/s can carry, to one subscriber that takes all.

Every contender has a link of its own, so that all run side by side: what a trial needs is time, not
the processor. Three publishers offer several times what the link carries, images and small events
in turns; the important channel has a publisher of its own, with images for 30 % of the link. Two
further links show what a strategy does when both channels want all of it, and when the link's rate
changes without anybody telling the node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final, TypeVar

from accord.apps.load.frames import LoadError
from benchmarks.contenders import StartError
from benchmarks.options import progress
from benchmarks.table2.figures import Figures, bytes_per_s, figures
from benchmarks.table2.nodes import (
    ALL,
    FIFO,
    IMPORTANT,
    MOSQUITTO,
    NORMAL,
    STRICT,
    WEIGHTED,
    Contender,
    Node,
    NoPoliciesError,
    running,
)
from benchmarks.table2.plans import Audience, Flow
from benchmarks.table2.trial import SECOND, Seen, Timing, Trial
from benchmarks.table2.wires import NODE_HOST, Wire, wires

KBPS: Final = 300
CHANGING_KBPS: Final = (1_000, 300, 2_000)
SATURATED_KBPS: Final = 1_000
CONTENDERS: Final = (FIFO, WEIGHTED, STRICT, MOSQUITTO)
IMPORTANT_SHARE: Final = 0.3
OVERLOAD: Final = 4.0
PUBLISHERS: Final = 3
_SATURATING: Final = 2.0
_IMAGE_BYTES: Final = (42_000, 70_000)
_SMALL_BYTES: Final = (200, 2_000)
_IMAGES: Final = 24
_HOST: Final = "127.0.0.1"
# Of a part of the changing link, what its queues hold from the part before.
SETTLING_S: Final = 5.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class Run:
    """A contender on a link."""

    contender: Contender
    kbps: int = KBPS
    is_saturated: bool = False
    is_changing: bool = False


@dataclass(frozen=True)
class Part:
    """The figures of a time in which the link had one rate."""

    kbps: int
    capacity: float
    used: float
    important: Figures
    normal: Figures


@dataclass
class Half:
    """By contender; the shares when saturated; the parts of the changing link."""

    parts: dict[str, Part] = field(default_factory=dict)
    saturated: Part | None = None
    changing: list[Part] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Effort:
    timing: Timing
    transfer_s: float


# A queue that everything goes through gets as old as the trial is long, and no older.
FULL: Final = Effort(Timing(10.0, 225.0, 8.0), 12.0)
QUICK: Final = Effort(Timing(6.0, 54.0, 7.0), 6.0)

RUNS: Final = (
    *(Run(contender) for contender in CONTENDERS),
    Run(WEIGHTED, SATURATED_KBPS, is_saturated=True),
    Run(STRICT, CHANGING_KBPS[0], is_changing=True),
)


def measure(effort: Effort, stop: threading.Event) -> Half:
    half = Half()
    for contender in CONTENDERS:
        contender.missing()  # finds out once, not for each of those who ask at the same time
    with wires([run.kbps for run in RUNS]) as links:
        progress("bandwidth: what the links carry")
        pairs = list(zip(RUNS, links, strict=True))
        jobs = [partial(_capacities, run, wire, effort) for run, wire in pairs]
        capacities = _together(jobs, stop)
        progress(f"bandwidth: {len(RUNS)} trials side by side, {effort.timing.seconds:.0f} s")
        trials = [
            partial(_attempt, run, wire, capacity, effort, stop)
            for (run, wire), capacity in zip(pairs, capacities, strict=True)
        ]
        for run, parts in zip(RUNS, _together(trials, stop), strict=True):
            _note(half, run, parts)
    return half


def _note(half: Half, run: Run, parts: list[Part] | str) -> None:
    if isinstance(parts, str):
        half.absent.append(f"Left out: {_name(run)}, {parts}.")
    elif run.is_changing:
        half.changing = parts
    elif run.is_saturated:
        (half.saturated,) = parts
    else:
        (half.parts[run.contender.name],) = parts


def _name(run: Run) -> str:
    more = ", saturated" if run.is_saturated else ", changing link" if run.is_changing else ""
    return f"{run.contender.name}{more}"


def _together(jobs: Sequence[Callable[[], Result]], stop: threading.Event) -> list[Result]:
    """All at once; where one fails or somebody wants to stop, the others stop too."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        try:
            return [each.result() for each in [pool.submit(job) for job in jobs]]
        except BaseException:
            stop.set()
            raise


def _capacities(run: Run, wire: Wire, effort: Effort) -> dict[int, float]:
    """Bytes per second at each of the link's rates."""
    rates = CHANGING_KBPS if run.is_changing else (run.kbps,)
    found = {}
    for kbps in rates:
        wire.change(kbps)
        found[kbps] = wire.measure(effort.transfer_s / len(rates) + len(rates))
    wire.change(rates[0])
    return found


def _attempt(
    run: Run,
    wire: Wire,
    capacities: dict[int, float],
    effort: Effort,
    stop: threading.Event,
) -> list[Part] | str:
    """The figures, or why there are none."""
    if reason := run.contender.missing():
        return reason
    try:
        with running(run.contender, inside=wire.near) as node:
            if run.contender.is_node:
                node.manage(run.contender)
            seen = _trial(run, wire, capacities, effort.timing, node, stop).run(node)
    except (StartError, NoPoliciesError, LoadError) as error:
        return str(error)
    return _parts(run, seen, capacities)


def _trial(  # noqa: PLR0913, PLR0917
    run: Run,
    wire: Wire,
    capacities: dict[int, float],
    timing: Timing,
    node: Node,
    stop: threading.Event,
) -> Trial:
    part_s = timing.measured_s / len(CHANGING_KBPS)
    changes = [
        (number * part_s, partial(wire.change, kbps))
        for number, kbps in enumerate(CHANGING_KBPS)
        if run.is_changing and number
    ]
    slowest = min(capacities.values())
    share = _SATURATING if run.is_saturated else IMPORTANT_SHARE
    overload = _SATURATING if run.is_saturated else OVERLOAD * max(capacities.values()) / slowest
    return Trial(
        Audience(host=NODE_HOST, port=node.port, topic=ALL, qos=1),
        _flows(node.port, share * slowest, overload * slowest, timing, run.is_saturated),
        timing,
        near=wire.near,
        far=wire.far,
        changes=changes,
        stop=stop,
    )


def _parts(run: Run, seen: Seen, capacities: dict[int, float]) -> list[Part]:
    rates = CHANGING_KBPS if run.is_changing else (run.kbps,)
    part_s = seen.span.seconds / len(rates)
    found = []
    for number, kbps in enumerate(rates):
        settling_s = SETTLING_S if number else 0.0
        span = seen.span.part(number * part_s + settling_s, (number + 1) * part_s)
        # What is due shortly before a change arrives at the next rate.
        end_ns = span.to_ns - (round(SETTLING_S * SECOND) if run.is_changing else 0)
        due = replace(span, to_ns=end_ns)
        important, normal = (figures(seen, topic, due) for topic in (IMPORTANT, NORMAL))
        found.append(Part(kbps, capacities[kbps], bytes_per_s(seen, span), important, normal))
    return found


def _flows(
    port: int, important: float, normal: float, timing: Timing, is_saturated: bool
) -> list[Flow]:
    flow = Flow(
        number=0,
        name="important",
        host=_HOST,
        port=port,
        topic=IMPORTANT,
        sizes=_sizes(0, has_small=False),
        bytes_per_s=important,
        seconds=timing.seconds,
        is_first=True,
    )
    # Where shares are compared, both channels have events of the same kind.
    crowd = [
        Flow(
            number=number,
            name=f"normal-{number}",
            host=_HOST,
            port=port,
            topic=NORMAL,
            sizes=_sizes(number, has_small=not is_saturated),
            bytes_per_s=normal / PUBLISHERS,
            seconds=timing.seconds,
        )
        for number in range(1, PUBLISHERS + 1)
    ]
    return [flow, *crowd]


def _sizes(seed: int, *, has_small: bool) -> tuple[int, ...]:
    random = Random(seed)
    images = [random.randint(*_IMAGE_BYTES) for _ in range(_IMAGES)]
    if not has_small:
        return tuple(images)
    return tuple(size for image in images for size in (image, random.randint(*_SMALL_BYTES)))
