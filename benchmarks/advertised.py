"""Filters that publishers advertise and subscribers ask for, for the benchmark of admission.

`market` is like the paper's example: ranges of prices, mostly of one name, on 20 channels.
`sensors` has 800 channels, and ranges of values. `siena_eq` has the predicates of the literature's
generator, of which hardly two limit the same attributes: nothing could be harder to keep in order.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from accord.core.admission.filter_index.filters import Filter
from accord.core.predicates.predicate import EVERYTHING, Predicate
from accord.core.predicates.tree import Attribute, Compare, Expr, Literal
from benchmarks.draws import Draw
from benchmarks.workloads import WORKLOADS, ready

_PRICES: Final = 10_000
_NAMES: Final = 500
_SITES: Final = 200
_KINDS: Final = ("hum", "rain", "temp", "wind")
_SIENA: Final = next(each for each in WORKLOADS if each.name == "siena_eq")

Make = Callable[[Random], Filter]


def market(random: Random) -> Filter:
    items: list[Expr] = []
    if random.random() < 0.7:
        name = f"S{random.randrange(_NAMES):03}"
        items.append(Compare("=", Attribute("name"), Literal(name)))
    low = random.randrange(_PRICES)
    if random.random() < 0.3:
        high = low + 1 + random.randrange(_PRICES // 4)
        items.append(Compare("<", Attribute("price"), Literal(high)))
    items.append(Compare(">", Attribute("price"), Literal(low)))
    if random.random() < 0.2:
        items.append(Compare(">=", Attribute("volume"), Literal(random.randrange(100))))
    return Filter(f"market/{random.randrange(20)}", ready(items))


def sensors(random: Random) -> Filter:
    channel = f"site/{random.randrange(_SITES)}/{random.choice(_KINDS)}"
    low = random.randrange(8_000) / 100
    items: list[Expr] = [Compare(">", Attribute("value"), Literal(low))]
    if random.random() < 0.5:
        high = low + random.randrange(1, 4_000) / 100
        items.insert(0, Compare("<", Attribute("value"), Literal(high)))
    if random.random() < 0.3:
        items.insert(0, Compare(">=", Attribute("quality"), Literal(random.randrange(10))))
    return Filter(channel, EVERYTHING if random.random() < 0.01 else ready(items))


def siena_eq(random: Random) -> Filter:
    draw = Draw("", "uniform")
    draw.random = random
    return Filter(f"market/{random.randrange(20)}", ready(_SIENA.make_items(draw)))


def asked(make: Make, random: Random) -> Filter:
    """Like what is advertised; some on many channels at once, and some of all that is there."""
    filter_ = make(random)
    chance = random.random()
    predicate: Predicate = EVERYTHING if chance < 0.05 else filter_.predicate
    channel = filter_.channel
    if chance < 0.1:
        first, _, rest = channel.partition("/")
        channel = "/".join((first, "+", *rest.split("/")[1:]))
    return Filter(channel, predicate)


MAKERS: Final[dict[str, Make]] = {"market": market, "sensors": sensors, "siena_eq": siena_eq}
