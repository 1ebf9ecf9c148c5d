"""Random policies, entities and events over domains so small that they meet, and plain evaluation.

`decided` is what policies mean, without index, bits or memory: a loop over all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from hypothesis import strategies as st

from accord.core.model.channels import filter_selects
from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.model.values import Value
from accord.core.policy.contexts import PolicyContext
from accord.core.policy.entity import Entity
from accord.core.policy.grants import Grant
from accord.core.policy.policy import OPERATIONS, Policy
from accord.core.policy.policy_set import STRATEGIES, ClientLimit, PolicySet
from accord.core.policy.preferences import PRESETS, Preferences
from accord.core.predicates.predicate import Predicate, parse

CLIENTS: Final = ("patrol-1", "patrol-2", "uav-1", "a%b", "")
USERS: Final = ("ann", "bob", "")
GROUPS: Final = ("red", "blue", "green")
NODES: Final = ("north", "south")
CHANNELS: Final = ("report", "uav/1/imagery", "uav/2/imagery", "uav", "$accord/x")
FILTERS: Final = ("report", "uav/1/imagery", "uav/+/imagery", "uav/#", "#", "+", "$accord/#")
WHERES: Final = (
    "payload_bytes > 100",
    "100 < payload_bytes",  # the same
    "platform = 'UAV'",
    "platform = 'UAV' AND speed > 3",
    "platform IS NULL",
)
WHENS: Final = (
    "link_kbps < 500",
    "link_kbps >= 500",
    "cpu_percent > 80",
    "link_kbps < 500 AND cpu_percent > 80",
    "link_kbps IS NULL",
)
# Each with what it means, said in Python.
WHOS: Final[dict[str, Callable[[Entity], bool]]] = {
    "client <> 'uav-1'": lambda e: bool(e.client) and e.client != "uav-1",
    "client = 'uav-1' AND node = 'north'": lambda e: e.client == "uav-1" and e.node == "north",
    "user IN ('ann', 'bob')": lambda e: e.user in ("ann", "bob"),
    "user LIKE 'a%'": lambda e: e.user.startswith("a"),
    "group = 'red'": lambda e: "red" in e.groups,
    "group <> 'red'": lambda e: "red" not in e.groups,
    "NOT group IN ('red', 'blue')": lambda e: not {"red", "blue"} & set(e.groups),
    "group = 'red' AND group = 'blue'": lambda e: {"red", "blue"} <= set(e.groups),
    "group NOT LIKE '%e'": lambda e: not any(group.endswith("e") for group in e.groups),
    "group IS NULL OR user IS NULL": lambda e: not e.groups or not e.user,
}

PREFERENCES: Final = st.sampled_from([None, *PRESETS]) | st.builds(
    lambda shaping, deadline_ms, replacement: Preferences(
        shaping=shaping[0],
        max_bytes=shaping[1],
        max_pixels=shaping[2],
        deadline_ms=deadline_ms,
        replacement=replacement,
    ),
    st.sampled_from(
        [(None,) * 3, ("none", None, None), ("scaling", 40_000, None), ("trim: a, b", 9, 7)]
    ),
    st.sampled_from([None, 0, 250, 5_000, 90_000]),
    st.sampled_from([None, False, True]),
)


def _some(*values: str, most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), unique=True, max_size=most).map(tuple)


POLICIES: Final = st.builds(
    Policy,
    name=st.just(""),
    operation=_some(*OPERATIONS),
    channel=_some(*FILTERS),
    client=_some("patrol-1", "uav-1", "patrol-*", "*-1", "*", "a%b", "a*b"),
    user=_some("ann", "bob", "*"),
    group=_some("red", "blue", "*e*"),
    node=_some("north", "s*h"),
    who=st.sampled_from(["", *WHOS]),
    where=st.sampled_from(["", *WHERES]),
    when=st.sampled_from(["", *WHENS]),
    precedence=st.integers(-1, 1),
    importance=st.none() | st.integers(0, 7),
    preferences=PREFERENCES,
).filter(lambda policy: policy.importance is not None or not policy.resolved_preferences.is_empty)
# With one condition at most, so that several apply and override each other.
WIDE_POLICIES: Final = st.builds(
    lambda condition, precedence, decides: Policy(
        name="", precedence=precedence, **condition, **decides
    ),
    st.sampled_from(
        [
            {},
            *({"where": text} for text in WHERES),
            *({"when": text} for text in WHENS),
            *({"who": text} for text in WHOS),
            *({"operation": (name,)} for name in OPERATIONS),
            *({"channel": (name,)} for name in FILTERS),
            {"client": ("patrol-*",)},
            {"user": ("*",)},
            {"group": ("red", "*e*")},
        ]
    ),
    st.integers(-1, 1),
    st.one_of(
        st.builds(lambda importance: {"importance": importance}, st.integers(0, 7)),
        st.builds(lambda preset: {"preferences": preset}, st.sampled_from(list(PRESETS))),
        st.just({"preferences": Preferences(replacement=False)}),
    ),
)


def _book(policies: list[Policy], **settings: object) -> PolicySet:
    named = [
        Policy(**{f: getattr(p, f) for f in p.__struct_fields__} | {"name": f"p{number}"})
        for number, p in enumerate(policies)
    ]
    return PolicySet(policies=tuple(named), **settings)  # type: ignore[arg-type]


BANDWIDTHS: Final = st.none() | st.integers(1_000, 10**12)
LIMITED: Final = st.text(min_size=1, max_size=9).filter(lambda name: "*" not in name)
# For what policies decide, where the other settings do not matter.
POLICY_BOOKS: Final = st.builds(_book, st.lists(WIDE_POLICIES | POLICIES, max_size=8))
BOOKS: Final = st.builds(
    _book,
    st.lists(POLICIES, max_size=4),
    version=st.integers(0, 2**40),
    strategy=st.sampled_from(STRATEGIES),
    shaping=st.booleans(),
    bandwidth_bps=BANDWIDTHS,
    client_bandwidth_bps=BANDWIDTHS,
    weights=st.tuples(*[st.integers(1, 1_000)] * 8),
    limits=st.lists(
        st.builds(ClientLimit, LIMITED, st.integers(1_000, 10**9)),
        unique_by=lambda limit: limit.client,
        max_size=3,
    ).map(tuple),
)
ENTITIES: Final = st.builds(
    Entity,
    st.sampled_from(CLIENTS),
    st.sampled_from(USERS),
    _some(*GROUPS, most=3),
    st.sampled_from(NODES),
)
RESOURCES: Final = st.fixed_dictionaries(
    {},
    optional={"link_kbps": st.sampled_from([300, 500]), "cpu_percent": st.sampled_from([50, 90])},
)
ATTRIBUTES: Final = st.fixed_dictionaries(
    {}, optional={"platform": st.sampled_from(["UAV", "ship", 3]), "speed": st.integers(2, 5)}
)
SIZES: Final = st.sampled_from([0, 100, 101])


@dataclass(frozen=True)
class Using:
    """Somebody who does something, under these conditions."""

    operation: str
    entity: Entity
    resources: Mapping[str, Value]


def applies(policy: Policy, channel: str, using: Using, values: Mapping[str, Value] | None) -> bool:
    """Without `values`, to events that meet no condition."""
    entity = using.entity
    return (
        (not policy.operation or using.operation in policy.operation)
        and (not policy.channel or any(filter_selects(each, channel) for each in policy.channel))
        and _names(policy.client, [entity.client])
        and _names(policy.user, [entity.user])
        and _names(policy.group, entity.groups)
        and _names(policy.node, [entity.node])
        and (not policy.who or WHOS[policy.who](entity))
        and (not policy.when or _parsed(policy.when).evaluate(using.resources) is True)
        and (
            not policy.where
            or (values is not None and _parsed(policy.where).evaluate(values) is True)
        )
    )


def _names(patterns: Iterable[str], names: Iterable[str]) -> bool:
    expressions = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    return not expressions or any(
        name and re.fullmatch(expression, name) for expression in expressions for name in names
    )


def decided(
    policies: Iterable[Policy],
    channel: str,
    sides: Iterable[Using],
    values: Mapping[str, Value] | None = None,
) -> Grant:
    """What counts for an event (one that meets no condition, without `values`)."""
    using = list(sides)
    order = [
        policy
        for policy in sorted(policies, key=_rank)
        if any(applies(policy, channel, side, values) for side in using)
    ]
    importance = [(p.importance, p.name) for p in order if p.importance is not None]
    deadline = [
        p.resolved_preferences.deadline_ms
        for p in order
        if p.resolved_preferences.deadline_ms is not None
    ]
    shaping = [p.resolved_preferences for p in order if p.resolved_preferences.shaping is not None]
    replacement = [
        p.resolved_preferences.replacement
        for p in order
        if p.resolved_preferences.replacement is not None
    ]
    shaped = shaping[0] if shaping else Preferences(shaping="none")
    shaper = shaped.shaping if shaped.shaping not in (None, "none") else ""
    return Grant(
        importance[0][0] if importance else DEFAULT_IMPORTANCE,
        deadline[0] if deadline else 0,
        shaper or "",
        shaped.max_bytes or 0,
        shaped.max_pixels or 0,
        replacement[0] if replacement else True,
        importance[0][1] if importance else order[0].name if order else "",
    )


@cache
def _parsed(text: str) -> Predicate:
    return parse(text)


@cache
def _rank(policy: Policy) -> tuple[int, ...]:
    specificity = PolicyContext(policy).specificity
    return (-policy.precedence, *(-number for number in specificity), int(policy.name[1:]))
