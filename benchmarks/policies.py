"""Policies: what they cost when something is opened, per message, and when they change."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median, quantiles
from time import thread_time
from typing import Final, Generic, TypeVar

from accord.core.model.values import Value
from accord.core.policy.explain import explain
from accord.core.policy.policies import Entity, Policies, compile_in_slices, resolve_in_slices
from accord.core.policy.policy_set import (
    PolicySet,
    parse_policy_set,
    policy_from,
    policy_set_from,
    render_policy_set,
    with_policy,
)
from benchmarks.measure import WrongAnswerError, no_collection, time_of
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "A mixture of policies: by client, user, group, channel filter, pattern and selector, two in "
    "five with a condition on events, one in ten with one on resources. Resolving at open is the "
    "first view of a channel, both sides and the grant; after that each is looked up. A change is "
    "another policy that affects 10,000 subscriptions: it is compiled and prepared in slices, then "
    "everything open is asked again. Read again means from TOML, with selectors known. CPU time of "
    "one thread, garbage collection off. Grants were checked against an explanation, which goes "
    "through all policies."
)
_SIZES: Final = (100, 1_000, 10_000)
_QUICK_SIZES: Final = (100, 1_000)
_OPENED: Final = 2_000
_OPEN: Final = 10_000
_CALLS: Final = 100_000
_CHECKED: Final = 50
_RESOURCES: Final = {"link_kbps": 300, "cpu_percent": 20}

Result = TypeVar("Result")


def run(options: Options) -> list[Table]:
    opening = Table(
        "Resolving, µs",
        ["policies", "open p50", "p99", "most", "view", "side", "grant", "matching", "holding"],
    )
    changing = Table(
        "A change that affects 10,000 subscriptions, ms",
        [
            "policies",
            "read anew",
            "read again",
            "compile all",
            "compile change",
            "prepare",
            "longest slice",
            "switch",
        ],
    )
    for size in _QUICK_SIZES if options.is_quick else _SIZES:
        progress(f"policies: {size:,}")
        documents = [_policy(place) for place in range(size)]
        with no_collection():
            before_s = thread_time()
            book = policy_set_from({"policies": documents})
            read_ms = (thread_time() - before_s) * 1e3
            policies = Policies(book)
            _check(policies)
            opening.add(number(size), *_opening(policies))
            changing.add(number(size), significant(read_ms), *_changing(book, policies))
    return [opening, changing]


def _policy(place: int) -> dict[str, object]:
    """One of ten kinds, in turns."""
    kinds: tuple[dict[str, object], ...] = (
        {"client": f"client-{place}", "channel": "report"},
        {"user": f"user-{place}", "when": f"link_kbps < {100 + place % 50 * 100}"},
        {"channel": f"area/{place}/#", "operation": "subscribe"},
        {"client": f"client-{place}", "channel": "uav/+/imagery", "where": f"speed > {place}"},
        {"group": f"group-{place}", "where": f"payload_bytes > {place} AND platform = 'UAV'"},
        {"client": [f"client-{place}", f"client-{place + 1}"], "precedence": place % 3},
        {"user": f"user-{place}-*", "where": f"payload_bytes > {place}"},
        {"channel": f"area/{place % 100}/+", "where": "platform = 'UAV'"},
        {"who": f"client = 'client-{place}' AND group <> 'blue'"},
        {"channel": f"area/{place % 100}/#", "who": f"client <> 'client-{place}'"},
    )
    return {"name": f"p{place}", "importance": place % 8, **kinds[place % len(kinds)]}


def _entity(place: int) -> Entity:
    groups = (f"group-{place}", f"group-{place + 4}")
    return Entity(f"client-{place}", f"user-{place}", groups, "north")


def _channel(place: int) -> str:
    return ("report", f"area/{place}/x", f"uav/{place % 100}/imagery")[place % 3]


def _check(policies: Policies) -> None:
    random = Random(1)
    for _ in range(_CHECKED):
        place = random.randrange(len(policies.rules))
        channel, publisher, receiver = _channel(place), _entity(place + 1), _entity(place)
        view = policies.view(channel)
        found = view.grant(view.publisher(publisher), view.receiver(receiver))
        expected = explain(
            policies, operation="subscribe", channel=channel, entity=receiver, publisher=publisher
        ).granted
        if (found.importance, found.policy) != (expected.importance, expected.policy):
            raise WrongAnswerError(f"{channel}: {found} is not {expected}")


def _opening(policies: Policies) -> list[str]:
    # Others than were checked, which are known already.
    fresh = Policies(policies.policy_set, [rule.context for rule in policies.rules])
    opened = [_time_us(partial(_open, fresh, place)) for place in range(_OPENED)]
    view = fresh.view("uav/1/imagery")
    publisher, receiver = _entity(1), _entity(3)
    sides = view.publisher(publisher), view.receiver(receiver)
    values: dict[str, Value] = {"platform": "UAV", "speed": 4}
    measured = [
        _each_us(lambda: fresh.view("uav/1/imagery")),
        _each_us(lambda: view.receiver(receiver)),
        _each_us(lambda: view.grant(*sides)),
        _each_us(lambda: view.matching(values, 5_000)),
        _each_us(lambda: fresh.holding(_RESOURCES, receiver)),
    ]
    shown = [median(opened), quantiles(opened, n=100)[-1], max(opened)]
    return [significant(each) for each in (*shown, *measured)]


def _open(policies: Policies, place: int) -> None:
    view = policies.view(_channel(place))
    view.grant(view.publisher(_entity(place + 1)), view.receiver(_entity(place)))


def _changing(book: PolicySet, policies: Policies) -> list[str]:
    text = render_policy_set(book)
    read_s = time_of(lambda: parse_policy_set(text)).cpu_s
    compile_s = time_of(lambda: Policies(book)).cpu_s
    everybody = policy_from({"name": "everybody", "importance": 7, "precedence": 9})
    open_ = [(_channel(place), _entity(place)) for place in range(_OPEN)]
    change = _slices(compile_in_slices(with_policy(book, everybody), policies))
    new = change.result
    preparing = _slices(_without_result(resolve_in_slices(new, open_, policies)))
    switch_s = time_of(lambda: _switch(new, open_)).cpu_s
    longest_s = max(change.longest_s, preparing.longest_s)
    spans = (read_s, compile_s, change.total_s, preparing.total_s, longest_s, switch_s)
    return [significant(each * 1e3) for each in spans]


def _switch(policies: Policies, open_: Iterable[tuple[str, Entity]]) -> None:
    for channel, entity in open_:
        entity.holding = policies.holding(_RESOURCES, entity)
        policies.view(channel).receiver(entity)


@dataclass(frozen=True)
class _Slices(Generic[Result]):
    """What was made a slice at a time."""

    result: Result
    total_s: float
    longest_s: float


def _slices(slices: Generator[None, None, Result]) -> _Slices[Result]:
    spans_s: list[float] = []
    while True:
        before_s = thread_time()
        try:
            next(slices)
        except StopIteration as end:
            spans_s.append(thread_time() - before_s)
            return _Slices(end.value, sum(spans_s), max(spans_s))
        spans_s.append(thread_time() - before_s)


def _without_result(slices: Iterator[None]) -> Generator[None, None, None]:
    yield from slices


def _time_us(action: Callable[[], object]) -> float:
    before_s = thread_time()
    action()
    return (thread_time() - before_s) * 1e6


def _each_us(action: Callable[[], object]) -> float:
    """With what the call of a function costs, which is about 0.05."""
    return _time_us(lambda: [action() for _ in range(_CALLS)]) / _CALLS
