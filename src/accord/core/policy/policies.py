"""Policy decisions, resolved when something is opened, and the switch to another policy set.

Three steps, each with a cache:
- a *view* of a channel holds the rules whose filters select it, still grouped by entity;
- a *side* is the contribution of one operation of one entity: the rules that apply to it, in the
  order in which they decide, without those that can no longer decide anything. Equal sides are one
  object;
- a *grant* combines two sides, publisher and receiver, with the `where` conditions that the event
  meets.

Conditions on resources (`when`) and on events (`where`) are bits, one for each distinct condition
of the policy set. Those on resources select the rules of a side; those on events stay open until a
grant. A view evaluates only the conditions that one of its sides depends on. A side must therefore
be created before `matching` is called, or its conditions do not count for that event.

A switch under load is prepared in slices and happens at once. The driver runs one slice per turn of
its event loop. `compile_in_slices` compiles the new policies, reusing what did not change;
`resolve_in_slices` then resolves them for everything that is open. After that only lookups remain.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final

from accord.core.model.channels import ChannelMap
from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.policy.applicability import Condition, Conditions, bits_of
from accord.core.policy.contexts import PUBLISH, QUERY, SUBSCRIBE, PolicyContext
from accord.core.policy.entity import Entity, Key
from accord.core.policy.grants import (
    DEFAULT_GRANT,
    NO_SIDE,
    Grant,
    PolicySide,
    decide,
    drop_overridden,
    make_ordered,
    merge_rules,
)
from accord.core.policy.policy import CLIENT_RESOURCES, NODE_RESOURCES, PAYLOAD_BYTES
from accord.core.policy.policy_set import PolicySet
from accord.core.policy.rules import Rule, RuleIndex, select_rules, sort_contexts
from accord.core.predicates.index import FrameMatches, Index

__all__ = [
    "DEFAULT_GRANT",
    "NO_SIDE",
    "ChannelPolicies",
    "Entity",
    "Grant",
    "Policies",
    "PolicySide",
]

ORDERED_GRANT: Final = make_ordered(DEFAULT_GRANT, DEFAULT_GRANT.importance)

# Cache limits; evicted results are computed again.
MAX_VIEWS: Final = 10_000
MAX_CASES: Final = 500_000
MAX_SIDES: Final = 200_000
MAX_GRANTS: Final = 250_000
MAX_CONCERNS: Final = 100_000
_MAX_SIDES_OF_CASE: Final = 64


class CandidateRules:
    """The rules that may apply to one operation of one entity on one channel.

    `mask` are the bits of the conditions on resources that it depends on; its sides are cached by
    them.
    """

    def __init__(self, rules: list[Rule]) -> None:
        self.rules: Final = rules
        mask = 0
        for rule in rules:
            mask |= rule.when
        self.mask: Final = mask
        self.sides: Final[dict[int, PolicySide]] = {}


class ChannelPolicies:
    """The policies of one channel.

    `is_plain`: there are none, the default applies. `has_conditions`: `matching` must be called for
    each event, and if `needs_attributes`, with its attributes.
    """

    def __init__(self, channel: str, indexes: list[RuleIndex], policies: Policies) -> None:
        self.channel: Final = channel
        self.is_plain: Final = len(indexes) == 0
        self.has_conditions = False
        self.needs_attributes = False
        self._indexes = indexes
        self._policies = policies
        self._grants = policies.grants
        self._conditions: list[Condition] = []
        self._index: Index | None = None  # of the same conditions, keyed by their bits
        self._needs_size = False
        self._condition_bits = 0
        self._publishers: dict[Key, CandidateRules] = {}
        self._receivers: dict[Key, CandidateRules] = {}
        self._queries: dict[Key, CandidateRules] = {}

    def publisher(self, entity: Entity) -> PolicySide:
        return self._side(self._publishers, entity, PUBLISH)

    def receiver(self, entity: Entity) -> PolicySide:
        return self._side(self._receivers, entity, SUBSCRIBE)

    def query(self, entity: Entity) -> PolicySide:
        return self._side(self._queries, entity, QUERY)

    def matching(
        self, values: Mapping[str, Value], payload_bytes: int, document: Document | None = None
    ) -> int:
        """The bits of the conditions on events that hold for this event."""
        if not self._conditions:
            return 0
        known: dict[str, Value] = dict(values)
        known[PAYLOAD_BYTES] = payload_bytes
        return bits_of(self._conditions, known, document)

    def match_frames(self, data: bytes, spans: bytes) -> FrameMatches | None:
        """As `matching`, for messages with properties at `spans`; each answer is a set of bits.

        None if some condition refers to more than properties.
        """
        if self._needs_size:
            return None
        if self._index is None:
            self._index = Index()
            for condition in self._conditions:
                self._index.add(condition.bit, condition.predicate)
        return self._index.match_frames(self.channel, data, spans)

    def grant(self, publisher: PolicySide, receiver: PolicySide, matching: int = 0) -> Grant:
        """The grant of a delivery from publisher to receiver."""
        relevant = matching & (publisher.mask | receiver.mask)
        if relevant:
            return self._policies.decide_conditional(publisher, receiver, relevant)
        found = self._grants.get(publisher.number << 31 | receiver.number)
        return self._policies.decide(publisher, receiver) if found is None else found

    def ordered_grant(
        self, publisher: PolicySide, receiver: PolicySide, matching: int, is_same_order: bool
    ) -> Grant:
        """The grant on an ordered channel, with order per publisher or total.

        All events then have one importance: conditions on single events do not decide it, and with
        a total order neither does the publisher.
        """
        if self.is_plain:
            return ORDERED_GRANT
        granted = self.grant(publisher, receiver, matching)
        common = self.grant(NO_SIDE if is_same_order else publisher, receiver)
        return make_ordered(granted, common.importance)

    def publish_grant(self, publisher: PolicySide, matching: int = 0) -> Grant:
        """The grant of one operation by itself: accepting an event, replying to a query."""
        return self.grant(publisher, NO_SIDE, matching)

    def clear_caches(self) -> None:
        """Empties the caches."""
        self._publishers.clear()
        self._receivers.clear()
        self._queries.clear()

    def _side(self, cases: dict[Key, CandidateRules], entity: Entity, operation: int) -> PolicySide:
        if self.is_plain:
            return NO_SIDE
        case = cases.get(entity.key)
        if case is None:
            case = self._case(cases, entity, operation)
        holding = entity.holding & case.mask
        side = case.sides.get(holding)
        return self._resolve(case, holding) if side is None else side

    def _case(
        self, cases: dict[Key, CandidateRules], entity: Entity, operation: int
    ) -> CandidateRules:
        found: dict[int, Rule] = {}
        for index in self._indexes:
            index.find(entity, operation, found)
        self._policies.count_case()
        rules = select_rules(found, entity)
        case = CandidateRules(rules) if rules else self._policies.no_case
        cases[entity.key] = case
        return case

    def _resolve(self, case: CandidateRules, holding: int) -> PolicySide:
        applying = [rule for rule in case.rules if not rule.when or rule.when & holding]
        side = self._policies.side_of(drop_overridden(applying))
        for rule in side.rules:
            if rule.where and not rule.where & self._condition_bits:
                self._add_condition(rule)
        if len(case.sides) >= _MAX_SIDES_OF_CASE:
            case.sides.clear()
        case.sides[holding] = side
        return side

    def _add_condition(self, rule: Rule) -> None:
        self._conditions.append(self._policies.where_of(rule))
        self._condition_bits |= rule.where
        self._index = None
        self._needs_size = self._needs_size or PAYLOAD_BYTES in rule.context.attributes
        self.has_conditions = True
        self.needs_attributes = self.needs_attributes or rule.context.needs_attributes


class Policies:
    """A policy set, compiled to decide.

    `contexts` are its compiled policies, if available. `node_resources` and `client_resources` are
    the resources that its conditions refer to.
    """

    def __init__(
        self,
        policy_set: PolicySet,
        contexts: list[PolicyContext] | None = None,
        is_indexed: bool = True,
    ) -> None:
        """Without indexing; `index` must complete before the first decision."""
        self.policy_set: Final = policy_set
        self.grants: Final[dict[int, Grant]] = {0: DEFAULT_GRANT}
        self.no_case: Final = CandidateRules([])
        self.node_resources: frozenset[str] = frozenset()
        self.client_resources: frozenset[str] = frozenset()
        self.rules: Final[list[Rule]] = []
        self.guaranteeing: Final[list[Rule]] = []  # rules that decide guarantees
        self._conditional: dict[tuple[int, int], Grant] = {}
        self._sides: dict[tuple[int, ...], PolicySide] = {(): NO_SIDE}
        self._last_side = 0
        self._views: dict[str, ChannelPolicies] = {}
        self._cases = 0
        self._whens = Conditions()
        self._wheres = Conditions()
        self._any_channel = RuleIndex()
        self._by_channel: ChannelMap[RuleIndex] = ChannelMap()
        self._resource_rules = RuleIndex()
        self._by_entity: dict[Key, list[Condition]] = {}
        if contexts is None:
            contexts = [PolicyContext(policy) for policy in policy_set.policies]
        self._contexts = sort_contexts(contexts)
        if is_indexed:
            self.index(len(contexts))

    def index(self, count: int) -> bool:
        """Indexes the next `count` policies; returns whether any are left."""
        start = len(self.rules)
        for context in self._contexts[start : start + count]:
            when = self._whens.add(context.when)
            where = self._wheres.add(context.where)
            rule = Rule(context, len(self.rules), when, where)
            self.rules.append(rule)
            if context.guarantee is not None:
                self.guaranteeing.append(rule)
            self._index(rule)
        return len(self.rules) < len(self._contexts)

    def view(self, channel: str) -> ChannelPolicies:
        found = self._views.get(channel)
        return self._view(channel) if found is None else found

    def holding(self, resources: Mapping[str, Value], entity: Entity | None = None) -> int:
        """The bits of the conditions on resources that hold; for an entity, those it depends on."""
        if self._whens.is_empty:
            return 0
        return bits_of(
            self._whens.all() if entity is None else self._conditions_for(entity), resources
        )

    def translate(self, old: Policies, holding: int) -> int:
        """Translates the bits of `old` to these; new conditions do not hold yet."""
        return self._whens.translate(old._whens, holding) if holding else 0

    def where_of(self, rule: Rule) -> Condition:
        predicate = rule.context.where
        assert predicate is not None
        return self._wheres.get(predicate)

    def side_of(self, rules: list[Rule]) -> PolicySide:
        """The side of these rules, which are in order."""
        key = tuple([rule.rank for rule in rules])
        side = self._sides.get(key)
        if side is None:
            if len(self._sides) >= MAX_SIDES:
                self._sides.clear()
                self._sides[()] = NO_SIDE
            self._last_side += 1
            side = self._sides[key] = PolicySide(self._last_side, rules)
        return side

    def decide(self, publisher: PolicySide, receiver: PolicySide) -> Grant:
        if len(self.grants) >= MAX_GRANTS:
            self.grants.clear()
            self.grants[0] = DEFAULT_GRANT
        grant = decide(merge_rules(publisher.rules, receiver.rules), 0)
        self.grants[publisher.number << 31 | receiver.number] = grant
        return grant

    def decide_conditional(
        self, publisher: PolicySide, receiver: PolicySide, matching: int
    ) -> Grant:
        key = (publisher.number << 31 | receiver.number, matching)
        grant = self._conditional.get(key)
        if grant is None:
            if len(self._conditional) >= MAX_GRANTS:
                self._conditional.clear()
            grant = decide(merge_rules(publisher.rules, receiver.rules), matching)
            self._conditional[key] = grant
        return grant

    def count_case(self) -> None:
        """Counts a cached case; when there are too many, all are evicted."""
        self._cases += 1
        if self._cases > MAX_CASES:
            for view in self._views.values():
                view.clear_caches()
            self._cases = 1

    def _view(self, channel: str) -> ChannelPolicies:
        indexes = self._by_channel.select(channel)
        if not self._any_channel.is_empty:
            indexes.append(self._any_channel)
        if len(self._views) >= MAX_VIEWS:
            del self._views[next(iter(self._views))]
        view = self._views[channel] = ChannelPolicies(channel, indexes, self)
        return view

    def _conditions_for(self, entity: Entity) -> list[Condition]:
        conditions = self._by_entity.get(entity.key)
        if conditions is None:
            found: dict[int, Rule] = {}
            self._resource_rules.find(entity, PUBLISH | SUBSCRIBE | QUERY, found)
            named = {
                rule.when: rule.context.when
                for rule in found.values()
                if rule.context.selects(entity)
            }
            conditions = [self._whens.get(when) for when in named.values() if when is not None]
            if len(self._by_entity) >= MAX_CONCERNS:
                self._by_entity.clear()
            self._by_entity[entity.key] = conditions
        return conditions

    def _index(self, rule: Rule) -> None:
        if rule.when:
            self._resource_rules.add(rule)
            self.node_resources |= rule.context.resources & NODE_RESOURCES
            self.client_resources |= rule.context.resources & CLIENT_RESOURCES
        if not rule.context.channels:
            self._any_channel.add(rule)
        for pattern in rule.context.channels:
            index = self._by_channel.get(pattern)
            if index is None:
                index = RuleIndex()
                self._by_channel.set(pattern, index)
            index.add(rule)


SLICE: Final = 100


def compile_in_slices(
    policy_set: PolicySet, previous: Policies | None = None, slice_size: int = SLICE
) -> Generator[None, None, Policies]:
    """Compiles the policies of `policy_set`, a slice at a time."""
    known = {} if previous is None else {rule.context.name: rule.context for rule in previous.rules}
    contexts: list[PolicyContext] = []
    for number, policy in enumerate(policy_set.policies, start=1):
        before = known.get(policy.name)
        is_known = before is not None and before.policy == policy
        contexts.append(before if before is not None and is_known else PolicyContext(policy))
        if number % slice_size == 0:
            yield
    policies = Policies(policy_set, contexts, is_indexed=False)
    yield
    while policies.index(slice_size):
        yield
    return policies


def resolve_in_slices(
    policies: Policies,
    open_: Iterable[tuple[str, Entity]],
    previous: Policies | None = None,
    slice_size: int = SLICE,
) -> Iterator[None]:
    """Resolves `policies` for the entities that use these channels, a slice at a time.

    The conditions that hold for an entity are known as bits of the `previous` policies, if any.
    """
    for number, (channel, entity) in enumerate(open_, start=1):
        holding = entity.holding
        if previous is not None:
            holding = policies.translate(previous, holding)
        view = policies.view(channel)
        policies.holding({}, entity)
        asking = entity.with_holding(holding)
        view.grant(view.publisher(asking), NO_SIDE)
        view.grant(NO_SIDE, view.receiver(asking))
        if number % slice_size == 0:
            yield
