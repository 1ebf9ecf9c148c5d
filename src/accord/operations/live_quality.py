"""The live set of negotiated quality: expectations, profiles, properties, and what was done."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.broker.quality_status import quality_totals
from accord.core.broker.quality_view import QualityFilter, shown_profiles, worst_expectations
from accord.core.quality.action_log import QualityAction
from accord.core.quality.properties import Value
from accord.core.quality.status import (
    CapabilityStatus,
    ExpectationStatus,
    NearestProfile,
    ProfileStatus,
    PropertyStatus,
    QualityTotals,
)
from accord.operations.live_set import Watch, live_set, sampled
from accord.operations.operation import Asker
from accord.operations.pages import Search
from accord.operations.ports import NodePorts, need


class WatchQuality(Watch, frozen=True, kw_only=True, tag="quality"):
    search: Search = ""
    mismatches: Annotated[bool, Meta(description="Without satisfied expectations.")] = False
    limit: Annotated[int, Meta(ge=1, le=200, description="How many of each at most.")] = 100


class Unmet(Struct, frozen=True, kw_only=True):
    """An insufficient property with its current value; none if nobody offers it."""

    property: str
    now: Value | None


class WatchedExpectation(Struct, frozen=True, kw_only=True):
    """An expectation; `rank` 0 is the worst. `channel` is a channel or a filter."""

    rank: int
    client: str
    id: str
    channel: str
    subscription: str
    expect: dict[str, Any]
    state: str
    decision: str
    reasons: tuple[Unmet, ...]
    relies_on: tuple[str, ...]
    nearest: NearestProfile | None


class WatchedProfile(Struct, frozen=True, kw_only=True):
    """A profile of a publisher at this node."""

    rank: int
    publisher: str
    channel: str
    source: str
    capabilities: tuple[CapabilityStatus, ...]
    expectations: int
    utility: float


class QualityState(Struct, frozen=True, kw_only=True):
    """The worst expectations by client and ID, profiles by channel and publisher.

    `actions` are the newest advice and acts of the node, by number, with what came of them.
    """

    node: str
    strategy: str
    totals: QualityTotals
    expectations_total: int
    expectations_matching: int
    expectations: dict[str, WatchedExpectation]
    profiles_total: int
    profiles_matching: int
    profiles: dict[str, WatchedProfile]
    actions: dict[str, QualityAction]
    properties: dict[str, PropertyStatus]


def _version(node: NodePorts) -> object:
    return sampled(node), None if node.quality is None else node.quality.quality.version


@live_set(changes_with=_version, every_ms=500)
def quality(node: NodePorts, ask: WatchQuality, asker: Asker) -> QualityState:
    """Expectations with state, reason and the profile nearest to each; profiles; advice."""
    port = need(node.quality, "negotiated quality")
    negotiation = port.quality
    wanted = QualityFilter(search=ask.search, is_mismatch=ask.mismatches, limit=ask.limit)
    expectations = worst_expectations(negotiation, wanted, asker.may_see)
    profiles = shown_profiles(negotiation, wanted, asker.may_see)
    actions = [each for each in negotiation.actions if asker.may_see(each.channel)]
    return QualityState(
        node=node.view.name,
        strategy=negotiation.negotiation.engine.strategy.name,
        totals=replace(quality_totals(negotiation, asker.may_see), profiles=profiles.total),
        expectations_total=expectations.total,
        expectations_matching=expectations.matching,
        expectations={
            f"{status.client}\n{status.id}": _expectation(rank, each.expectation.channel, status)
            for rank, (each, status) in enumerate(expectations.rows)
        },
        profiles_total=profiles.total,
        profiles_matching=profiles.matching,
        profiles={
            f"{each.profile.channel}\n{status.publisher}": _profile(
                rank, each.profile.channel, status
            )
            for rank, (each, status) in enumerate(profiles.rows)
        },
        actions={str(each.number): each for each in actions[: ask.limit]},
        properties={each.name: each for each in port.properties()},
    )


def _expectation(rank: int, channel: str, status: ExpectationStatus) -> WatchedExpectation:
    return WatchedExpectation(
        rank=rank,
        client=status.client,
        id=status.id,
        channel=channel,
        subscription=status.subscription,
        expect=status.expect,
        state=status.state,
        decision=status.decision,
        reasons=tuple(Unmet(property=name, now=now) for name, now in status.reasons.items()),
        relies_on=status.relies_on,
        nearest=status.nearest,
    )


def _profile(rank: int, channel: str, status: ProfileStatus) -> WatchedProfile:
    return WatchedProfile(
        rank=rank,
        publisher=status.publisher,
        channel=channel,
        source=status.source,
        capabilities=status.capabilities,
        expectations=status.expectations,
        utility=status.utility,
    )
