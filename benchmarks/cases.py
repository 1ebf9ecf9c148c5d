"""What brokers are compared in: plain messages, and what the system is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from benchmarks.contenders import Setup
from benchmarks.contents import FIVE, ONE
from benchmarks.load import Shape
from benchmarks.options import Options
from benchmarks.race import Case
from benchmarks.selections import PAYLOAD_BYTES, Selection

_ONE_TO_ONE: Final = Shape("1→1")
_SHARED: Final = Shape("1→4 shared", subscribers=4, is_shared=True)
_BY_TOPIC: Final = Shape("1→4 by topic", subscribers=4, topics=4)  # as many messages for each
_SHAPES: Final = (
    _ONE_TO_ONE,
    Shape("1→10", subscribers=10),
    Shape("10→1", publishers=10),
    Shape("10→10 in pairs", lanes=10),
    Shape("1→10 by topic", subscribers=10, topics=10),
)
_SESSION_S: Final = 3_600
_ALL_MEET: Final = "speed >= 0"
_MANY: Final = 100_000
_QUICK_MANY: Final = 10_000

_BY_CHANNEL: Final = Setup(
    "policy by channel",
    policies='[[policies]]\nname = "Bench"\nchannel = "bench/#"\nimportance = 6\n',
)
_BY_CONTENT: Final = Setup(
    "policy by content",
    policies='[[policies]]\nname = "Bench"\nchannel = "bench/#"\nwhere = "speed > 500"\n'
    "importance = 6\n",
)
# Mosquitto writes all that it holds to a file, when it ends and every half an hour; it calls no
# fsync. Accord writes to its journal, with fsync, before it acknowledges.
_KEPT: Final = Setup(
    "kept",
    accord='[[keep]]\nchannels = "bench/#"\n',
    mosquitto="persistence true\npersistence_location {folder}/\n",
)
_MANY_EACH: Final = Setup(
    "many predicates each",
    accord="[limits]\npredicates_per_client = 10000\nsubscriptions_per_client = 10000\n",
)
NOTES: Final = (
    "predicates: cost per published message. 100, 1,000 or 10,000 predicates per session, each a",
    "shared subscription of its own: MQTT has one for a filter. Or with different filters.",
    "predicates: mosquitto forwards the same messages to one plain subscriber, whoever gets them.",
    "shared: with a predicate that all messages meet, mosquitto without.",
    "kept: durable sessions. Accord writes to its journal, with fsync, before it acknowledges.",
    "kept: mosquitto writes a file every half an hour, which is not here, and without fsync.",
    "policies: mosquitto has none, it gets the same messages.",
)


def cases(options: Options) -> list[Case]:
    """Those that were asked for; those with the same setup follow each other."""
    many = _QUICK_MANY if options.is_quick else _MANY
    return [case for case in _all(many) if options.has_case(case.group)]


def _all(many: int) -> Iterator[Case]:
    for qos, size, shape in product((0, 1), (100, 1_024), _SHAPES):
        yield Case(shape, size, qos)
    for qos in (0, 1):
        yield Case(_ONE_TO_ONE, 100, qos, level=5)
    plain = Case(_ONE_TO_ONE, PAYLOAD_BYTES, 0, level=5)
    for content in (ONE, FIVE):
        yield replace(plain, group="properties", name=content.name, content=content, most=0.03)
    yield from _predicates(replace(plain, group="predicates"), many)
    yield from _shared(replace(plain, group="shared"))
    qos1 = replace(plain, group="qos1", qos=1, most=0.05)
    yield replace(qos1, name="no properties")
    yield replace(qos1, name=ONE.name, content=ONE)
    yield replace(qos1, name=FIVE.name, content=FIVE)
    policies = replace(plain, group="policies", content=ONE)
    # A condition on attributes is one predicate.
    for setup, most in ((_BY_CHANNEL, 0.04), (_BY_CONTENT, 0.05)):
        yield replace(policies, name=setup.name, setup=setup, most=most)
    kept = replace(qos1, group="kept", session_s=_SESSION_S, setup=_KEPT, most=0.2)
    yield replace(kept, name="no properties")
    yield replace(kept, name=ONE.name, content=ONE)


def _predicates(case: Case, many: int) -> Iterator[Case]:
    for selection, most in (
        (Selection(1, "none"), 0.05),
        (Selection(1, "a tenth"), 0.05),
        (Selection(1, "all"), 0.05),
        (Selection(1_000, "none"), 0.12),
        (Selection(1_000, "one"), 0.12),
        (Selection(1_000, "one", has_filters=True), None),
        (Selection(many, "none", per_session=1_000), 0.6),
        (Selection(many, "one", per_session=1_000), 0.6),
        (Selection(many, "one", per_session=10_000), 0.6),
    ):
        shape = Shape(f"1→{selection.sessions:,}")
        name = f"{selection.predicates:,}, {selection.met} met"
        if selection.has_filters:
            name += ", 100 filters"
        setup = _MANY_EACH if selection.per_session > 1_000 else case.setup
        # Only those that get predicates get this shape, for others it is 1→1.
        yield replace(case, shape=shape, name=name, selection=selection, most=most, setup=setup)


def _shared(case: Case) -> Iterator[Case]:
    ordinary = replace(case, shape=_BY_TOPIC, name="ordinary", content=ONE)
    yield ordinary
    yield replace(ordinary, shape=_SHARED, name="shared", most=1.25, beside="ordinary")
    asked = replace(ordinary, name="ordinary, predicate", where=_ALL_MEET)
    yield asked
    yield replace(
        asked, shape=_SHARED, name="shared, predicate", most=1.25, beside="ordinary, predicate"
    )
