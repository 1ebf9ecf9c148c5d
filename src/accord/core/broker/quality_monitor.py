"""Measures events of channels with profiles, and applies negotiated mechanisms to them.

The router passes only events of such channels through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from accord.core.broker.delivery_accounting import record_unrouted
from accord.core.broker.message import MqttMessage
from accord.core.broker.session import MqttSession
from accord.core.model.channels import filter_selects
from accord.core.monitoring.ledger import SHED
from accord.core.quality.client_quality import ClientProfile, ClientQuality
from accord.core.quality.measurements import Measurement
from accord.core.quality.mechanisms import FILTERED, ActiveMechanisms
from accord.core.quality.messages import Notice
from accord.core.quality.meters import ORDERED, ChannelMeter, RateMeter, differs
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.profiles import Profile
from accord.core.router.fan_out import MessageOverride, PublisherFanOut, Receiver

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

_RATE: Final = "rate"
_CHANNELS_PER_STEP: Final = 100  # channels measured per step


class QualityMonitor:
    """Meters and mechanisms of channels; `order_of` returns the delivery order of a channel."""

    def __init__(
        self,
        broker: Broker,
        negotiation: Negotiation,
        clock_us: Callable[[], int],
        clients: dict[str, ClientQuality],
        handle_notices: Callable[[list[Notice]], None],
    ) -> None:
        self.mechanisms = ActiveMechanisms()
        self.filtered = 0
        self.order_of: Callable[[str], str] = lambda _: ORDERED
        self.best_reliability: float | None = None  # the best available, if any is better
        self._broker = broker
        self._negotiation = negotiation
        self._clock_us = clock_us
        self._clients = clients
        self._handle_notices = handle_notices
        self._channels: dict[str, ChannelMeter] = {}
        self._rates: dict[str, dict[str, RateMeter]] = {}  # by channel and source

    def watch(self, declared: ClientProfile) -> None:
        channel = declared.profile.channel
        if channel not in self._channels:
            router = self._broker.router
            router.watched[channel] = True
            router.invalidate(channel)
            meter = self._channels[channel] = ChannelMeter(channel, router.channels.get(channel))
            for measurement in meter.initial(self.order_of(channel), self.best_reliability):
                self._measure(measurement)
        self._start_counting(declared)

    def unwatch(self, declared: ClientProfile) -> None:
        channel = declared.profile.channel
        self._stop_counting(declared)
        if not self._negotiation.profiles.sources_on(channel) and channel in self._channels:
            del self._channels[channel]
            self._broker.router.watched.pop(channel, None)
            self._broker.router.invalidate(channel)

    def change(self, declared: ClientProfile, profile: Profile, source: str) -> None:
        """Apply a changed profile; measuring continues if the declared rate is about the same.

        Otherwise a publisher that declares often would never be compared with its measured rate.
        """
        before, after = _rate_of(declared.profile), _rate_of(profile)
        is_known = before is not None and after is not None and not differs(before, after)
        if is_known and source == declared.source:
            declared.profile = profile
            return
        self._stop_counting(declared)
        declared.profile, declared.source = profile, source
        self._start_counting(declared)

    def publish(self, message: MqttMessage, fan_out: PublisherFanOut) -> int:
        """Pass on a message of a channel with profiles."""
        reached = self._broker.router.publish(message, fan_out, self._override(message, fan_out))
        meters = self._rates.get(message.channel)
        meter = None if meters is None else meters.get(message.publisher)
        if meter is not None:
            meter.count += 1
        return reached

    def _override(self, message: MqttMessage, fan_out: PublisherFanOut) -> MessageOverride | None:
        acts = self.mechanisms
        place = message.channel, message.publisher
        filter_, lift = acts.filters.get(place), acts.adjustments.get(place)
        if filter_ is None and lift is None:
            return None
        special = MessageOverride()
        if filter_ is not None and not filter_.passes(self._clock_us()):
            for receiver in self._expecting_receivers(fan_out):
                special.skipped[receiver] = True
                self._record_filtered(message, receiver)
        if lift is not None:
            special.adjust_grant = lift.grant
        return special

    def measure(self) -> Iterator[None]:
        """Measure all channels, in steps; run once a second."""
        for number, meter in enumerate(list(self._channels.values())):
            if number % _CHANNELS_PER_STEP == _CHANNELS_PER_STEP - 1:
                yield
            if meter.channel not in self._channels:
                continue
            order = self.order_of(meter.channel)
            for measurement in meter.sample(order, self.best_reliability):
                self._measure(measurement)
            for rate in list(self._rates.get(meter.channel, {}).values()):
                rate_hz = rate.rate_hz(self._clock_us())
                if rate_hz is not None:
                    for declared in list(rate.users):
                        self._correct(declared, rate_hz)

    def _measure(self, measurement: Measurement) -> None:
        self._handle_notices(self._negotiation.measure(measurement, now_us=self._clock_us()))

    def _correct(self, declared: ClientProfile, rate_hz: float) -> None:
        """Correct a declared rate by the measured one."""
        capabilities = list(declared.profile.capabilities)
        for number, each in enumerate(capabilities):
            if each.property != _RATE or isinstance(each.current, str):
                continue
            measured = min(max(rate_hz, float(each.lower)), float(each.upper))
            if not differs(each.current, measured):
                return
            capabilities[number] = msgspec.structs.replace(each, current=measured)
            profile = msgspec.structs.replace(declared.profile, capabilities=tuple(capabilities))
            declared.profile = profile
            self._handle_notices(self._negotiation.update_profile(profile, now_us=self._clock_us()))
            return

    def _start_counting(self, declared: ClientProfile) -> None:
        meters = self._rates.setdefault(declared.profile.channel, {})
        meter = meters.setdefault(declared.source, RateMeter(self._clock_us()))
        meter.restart(self._clock_us())
        meter.users[declared] = True

    def _stop_counting(self, declared: ClientProfile) -> None:
        meters = self._rates[declared.profile.channel]
        meter = meters[declared.source]
        del meter.users[declared]
        if not meter.users:
            del meters[declared.source]
        if not meters:
            del self._rates[declared.profile.channel]

    def _expecting_receivers(self, fan_out: PublisherFanOut) -> list[Receiver]:
        """Receivers all of whose matching subscriptions have expectations."""
        found: list[Receiver] = []
        for target in fan_out.channel_fan_out.targets:
            receiver = target.receiver
            holder = self._clients.get(receiver.name)
            if holder is None or not isinstance(receiver, MqttSession):
                continue
            names = [
                name
                for name, each in receiver.subscriptions.items()
                if filter_selects(each.pattern, fan_out.channel_fan_out.channel)
            ]
            if all(name in holder.by_subscription for name in names):
                found.append(receiver)
        return found

    def _record_filtered(self, message: MqttMessage, receiver: Receiver) -> None:
        context = self._broker.context
        self.filtered += 1
        context.counters.count_shed(FILTERED, receiver.name)
        record_unrouted(
            context,
            message.number,
            message.channel,
            message.publisher,
            SHED,
            message.received_ms,
            len(message.payload),
            FILTERED,
        )


def _rate_of(profile: Profile) -> float | None:
    """The declared current rate."""
    for each in profile.capabilities:
        if each.property == _RATE and not isinstance(each.current, str):
            return each.current
    return None
