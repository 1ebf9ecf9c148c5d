"""Status of negotiated quality at a node for operators: per channel, and in total."""

from __future__ import annotations

from typing import Final

from accord.core.broker.client_negotiation import ClientNegotiation
from accord.core.model.channels import filter_selects
from accord.core.quality.client_quality import ClientExpectation
from accord.core.quality.expectations import Lifecycle
from accord.core.quality.json_forms import render_expectation
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.messages import AdaptationDecision
from accord.core.quality.profiles import ScoredCapabilities
from accord.core.quality.status import (
    CapabilityStatus,
    ChannelQuality,
    ExpectationStatus,
    ProfileStatus,
    QualityStatus,
    QualityTotals,
    SkylineStatus,
)

MAX_SHOWN: Final = 1_000  # profiles shown at once, and expectations


def quality_totals(quality: ClientNegotiation) -> QualityTotals:
    states = dict.fromkeys(("satisfied", "satisfiable", "unsatisfied", "suspended"), 0)
    for holder in quality.clients.values():
        for each in holder.expected.values():
            active = "unsatisfied" if each.state is None else each.state.word
            states[active if each.lifecycle is Lifecycle.ACTIVE else "suspended"] += 1
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
        number, utility = quality.negotiation.usage(local.profile.publisher, channel)
        profile = ProfileStatus(
            publisher=local.profile.publisher,
            capabilities=_capabilities(local.offers),
            expectations=number,
            utility=utility,
        )
        profiles.setdefault(channel, []).append(profile)
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
            expectations.setdefault(channel, []).append(_expectation(quality, each))
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
    )


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
        )
        for name, offer in offers.items()
    )


def _expectation(quality: ClientNegotiation, expected: ClientExpectation) -> ExpectationStatus:
    if expected.lifecycle is not Lifecycle.ACTIVE:
        return ExpectationStatus(
            client=expected.holder.client,
            id=expected.id,
            expect=render_expectation(expected.form),
            state="suspended",
        )
    standing = quality.negotiation.report(expected.expectation.id)
    return ExpectationStatus(
        client=expected.holder.client,
        id=expected.id,
        expect=render_expectation(expected.form),
        state="unsatisfied" if standing.state is None else standing.state.word,
        decision="" if standing.decision is AdaptationDecision.NONE else standing.decision.value,
        reasons={reason.property: reason.now for reason in standing.reasons},
        relies_on=tuple(_member(quality, copy) for copy in standing.depends_on),
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
