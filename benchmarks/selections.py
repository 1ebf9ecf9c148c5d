"""Predicates of subscribers, and messages of which it is known beforehand who has to get them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, islice
from random import Random
from typing import Final, Literal

from accord.core.predicates.tree import And, Attribute, Compare, Expr
from accord.core.predicates.tree import Literal as Constant
from accord.predicates import Event, Index, parse
from benchmarks.contents import ONE, Content, UserProperties
from benchmarks.filters import CHANNEL, filters
from benchmarks.mqtt import Mqtt
from benchmarks.workloads import WORKLOADS, Keyed

MQTT: Final = Mqtt(level=5)
PAYLOAD_BYTES: Final = 100
_SIENA: Final = next(each for each in WORKLOADS if each.name == "siena")
_EVENTS: Final = 20_000
_SEED: Final = 28
_ONE_WHERE: Final = {"none": "speed < 0", "a tenth": "speed < 100", "all": "speed >= 0"}

Met = Literal["none", "a tenth", "all", "one"]


@dataclass(frozen=True)
class Selection:
    """How many predicates there are, and how many of them a message meets.

    One is on an attribute that all messages have; more are SIENA's, so many in a session. MQTT
    allows one subscription for a filter: so each is a shared subscription, of a group of its own,
    or `has_filters` of its own.
    """

    predicates: int
    met: Met
    has_filters: bool = False
    per_session: int = 100

    @property
    def sessions(self) -> int:
        return -(-self.predicates // self.per_session)

    @property
    def content(self) -> Content:
        return _prepared(self).content

    def subscriptions(self, session: int) -> list[bytes]:
        """What it sends to subscribe, a packet for each predicate."""
        asked = []
        keyed = _prepared(self).wheres[session :: self.sessions]
        for number, (where, topic) in enumerate(zip(keyed, cycle(filters(CHANNEL)), strict=False)):
            group = session + number * self.sessions
            is_ordinary = self.has_filters or self.predicates == 1
            full = topic if is_ordinary else f"$share/group-{group}/{CHANNEL}"
            asked.append(MQTT.subscription((full,), number + 1, where))
        return asked

    def receivers(self, count: int) -> list[tuple[int, ...]]:
        """The sessions that get each of so many messages."""
        return list(islice(cycle(_prepared(self).receivers), count))


@dataclass(frozen=True)
class _Prepared:
    wheres: Sequence[str]
    content: Content
    # Of each message of the content, in its order.
    receivers: Sequence[tuple[int, ...]]


@lru_cache(maxsize=2)
def _prepared(selection: Selection) -> _Prepared:
    return _one(selection) if selection.predicates == 1 else _many(selection)


def _one(selection: Selection) -> _Prepared:
    where = _ONE_WHERE[selection.met]
    predicate = parse(where)
    receivers = []
    drawn = ONE.properties(_EVENTS)
    for properties in drawn:
        is_met = predicate.evaluate({"speed": float(properties["speed"])})
        receivers.append((0,) if is_met else ())
    return _Prepared([where], _repeated(ONE.name, drawn), receivers)


def _many(selection: Selection) -> _Prepared:
    predicates = list(_SIENA.predicates(selection.predicates))
    index = Index()
    for key, predicate in predicates:
        index.add(key, predicate)
    chosen: list[UserProperties] = []
    receivers = []
    for event in _candidates(predicates, selection.met):
        keys = [key for key in index.match(event).keys if isinstance(key, int)]
        if len(keys) == (selection.met == "one"):
            chosen.append({name: str(value) for name, value in event.attributes.items()})
            receivers.append(tuple(key % selection.sessions for key in keys))
        if len(chosen) == _EVENTS:
            break
    assert len(chosen) == _EVENTS, "too few events meet as many predicates as asked for"
    wheres = [str(predicate) for _, predicate in predicates]
    return _Prepared(wheres, _repeated("3 to 5 properties, expiry", chosen), receivers)


def _candidates(predicates: Sequence[Keyed], met: Met) -> Iterator[Event]:
    if met == "none":
        yield from _SIENA.events(2 * _EVENTS)
        return
    random = Random(_SEED)
    for _ in range(2 * _EVENTS):
        _, predicate = random.choice(predicates)
        yield Event(channel=CHANNEL, attributes=dict(_meeting(predicate.tree, random)))


def _meeting(tree: Expr, random: Random) -> Iterator[tuple[str, int]]:
    """Attributes that meet a conjunction of comparisons."""
    for item in tree.items if isinstance(tree, And) else (tree,):
        assert isinstance(item, Compare)
        assert isinstance(item.left, Attribute)
        assert isinstance(item.right, Constant)
        value = item.right.value
        assert isinstance(value, int)
        step = random.randint(1, 9)
        yield item.left.name, value + {"=": 0, "<>": step, "<": -step, ">": step}[item.op]


def _repeated(name: str, drawn: list[UserProperties]) -> Content:
    return Content(name, lambda count: list(islice(cycle(drawn), count)))


def per_chunk(receivers: Sequence[tuple[int, ...]], chunk: int) -> list[Counter[int]]:
    """How many messages of each chunk every session gets."""
    return [
        Counter(session for each in receivers[start : start + chunk] for session in each)
        for start in range(0, len(receivers), chunk)
    ]
