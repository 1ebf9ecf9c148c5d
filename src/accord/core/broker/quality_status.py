"""Status of negotiated quality at a node for operators: per channel, and in total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.model.channels import filter_selects
from accord.core.quality.client_quality import ClientExpectation
from accord.core.quality.expectations import Lifecycle
from accord.core.quality.json_forms import cost_form, render_expectation
from accord.core.quality.local_profiles import LocalProfile
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.messages import AdaptationDecision
from accord.core.quality.profiles import ScoredCapabilities
from accord.core.quality.status import (
    CapabilityStatus,
    ChannelQuality,
    ExpectationStatus,
    NearestProfile,
    ProfileStatus,
    QualityStatus,
    QualityTotals,
    SkylineStatus,
)

MAX_SHOWN: Final = 1_000  # profiles shown at once, and expectations


def quality_totals(
    quality: ClientNegotiation, may_see: Callable[[str], bool] | None = None
) -> QualityTotals:
    """Totals; the states are those of expectations on channels that `may_see`, if given."""
    states = dict.fromkeys(("satisfied", "satisfiable", "unsatisfied", "suspended"), 0)
    for holder in quality.clients.values():
        for each in holder.expected.values():
            if may_see is None or may_see(each.expectation.channel):
                states[state_word(each)] += 1
    counts = quality.counts
    return QualityTotals(
        profiles=len(quality.negotiation.profiles),
        states=states,
        reactions=len(quality.negotiation.coordinator),
        advice=counts.advice,
        told=counts.states,
        usages=counts.usages,
        acts=counts.mechanisms,
        filtered=quality.monitor.filtered,
    )


def quality_status(quality: ClientNegotiation, node: str, pattern: str = "#") -> QualityStatus:
    """Status of the channels that `pattern` selects, and of filters equal to it."""
    profiles: dict[str, list[ProfileStatus]] = {}
    expectations: dict[str, list[ExpectationStatus]] = {}
    shown = left_off = 0
    for local in quality.negotiation.profiles:
        channel = local.profile.channel
        if not _is_selected(channel, pattern):
            continue
        if shown >= MAX_SHOWN:
            left_off += 1
            continue
        shown += 1
        profiles.setdefault(channel, []).append(profile_status(quality, local))
    shown = 0
    for holder in quality.clients.values():
        for each in holder.expected.values():
            channel = each.expectation.channel
            if not _is_selected(channel, pattern):
                continue
            if shown >= MAX_SHOWN:
                left_off += 1
                continue
            shown += 1
            expectations.setdefault(channel, []).append(expectation_status(quality, each))
    channels = tuple(
        ChannelQuality(
            channel=channel,
            profiles=tuple(profiles.get(channel, ())),
            skylines=_skylines(quality, channel),
            expectations=tuple(expectations.get(channel, ())),
        )
        for channel in sorted({*profiles, *expectations})
    )
    return QualityStatus(
        node=node,
        strategy=quality.negotiation.engine.strategy.name,
        totals=quality_totals(quality),
        channels=channels,
        left_off=left_off,
        actions=tuple(each for each in quality.actions if _is_selected(each.channel, pattern)),
    )


def state_word(expected: ClientExpectation) -> str:
    """The state as last reported to the client, which is quick to find."""
    if expected.lifecycle is not Lifecycle.ACTIVE:
        return "suspended"
    return "unsatisfied" if expected.state is None else expected.state.word


def _is_selected(channel: str, pattern: str) -> bool:
    return pattern in ("#", channel) or filter_selects(pattern, channel)


def _capabilities(offers: ScoredCapabilities) -> tuple[CapabilityStatus, ...]:
    return tuple(
        CapabilityStatus(
            property=name,
            lower=offer.capability.lower,
            upper=offer.capability.upper,
            current=offer.capability.current,
            is_measured=offer.property.is_measured,
            cost=cost_form(offer.capability.cost),
        )
        for name, offer in offers.items()
    )


def profile_status(quality: ClientNegotiation, local: LocalProfile) -> ProfileStatus:
    publisher, channel = local.profile.publisher, local.profile.channel
    number, utility = quality.negotiation.usage(publisher, channel)
    holder = quality.clients.get(publisher)
    declared = None if holder is None else holder.declared.get(channel)
    source = publisher if declared is None else declared.source
    return ProfileStatus(
        publisher=publisher,
        capabilities=_capabilities(local.offers),
        expectations=number,
        utility=utility,
        source="" if source == publisher else source,
    )


def expectation_status(
    quality: ClientNegotiation, expected: ClientExpectation
) -> ExpectationStatus:
    status = ExpectationStatus(
        client=expected.holder.client,
        id=expected.id,
        expect=render_expectation(expected.form),
        state="suspended",
        subscription=expected.subscription,
    )
    if expected.lifecycle is not Lifecycle.ACTIVE:
        return status
    standing = quality.negotiation.report(expected.expectation.id)
    return replace(
        status,
        state="unsatisfied" if standing.state is None else standing.state.word,
        decision="" if standing.decision is AdaptationDecision.NONE else standing.decision.value,
        reasons={reason.property: reason.now for reason in standing.reasons},
        relies_on=tuple(_member(quality, copy) for copy in standing.depends_on),
        nearest=_nearest(quality, expected),
    )


def _nearest(quality: ClientNegotiation, expected: ClientExpectation) -> NearestProfile | None:
    found = quality.negotiation.nearest(expected.expectation.id)
    if found is None:
        return None
    copy, offers = found
    local = quality.negotiation.profiles.get(copy[0])
    is_remote = bool(copy[1]) or local is None
    channel = expected.expectation.channel
    return NearestProfile(
        publisher=_member(quality, copy),
        channel=channel if is_remote or local is None else local.profile.channel,
        capabilities=_capabilities(offers),
        is_remote=is_remote,
    )


def _skylines(quality: ClientNegotiation, channel: str) -> tuple[SkylineStatus, ...]:
    negotiation = quality.negotiation
    return tuple(
        SkylineStatus(
            properties=scope[1],
            members=tuple(
                _member(quality, copy) for copy in negotiation.skyline(scope)[:MAX_SHOWN]
            ),
        )
        for scope in negotiation.supersets.groups
        if scope[0] == channel
    )


def _member(quality: ClientNegotiation, copy: ProfileCopy) -> str:
    """The publisher of a local profile; of a remote one only the node is known."""
    source, path = copy
    local = quality.negotiation.profiles.get(source)
    if not path and local is not None:
        return local.profile.publisher
    return f"{source} by {' '.join(path)}" if path else source
