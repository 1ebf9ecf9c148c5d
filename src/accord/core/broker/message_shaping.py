"""Shaped messages: each conversion is done once for all receivers that need it.

Conversions are slow, so worker processes do them: a `ShapingOrder` goes to the driver, and the
deliveries that wait for it continue when it is done. If it fails, they get the original message.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from accord.core.broker.broker_context import BrokerContext, ShapingWaiter, WorkerOrder
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.message import MqttMessage
from accord.core.mqtt.properties import (
    OWN_PREFIX,
    forwarded_block,
    forwarded_properties,
    read_block,
)
from accord.core.scheduling.link_estimator import LinkEstimator
from accord.core.scheduling.outbox import Outbox
from accord.core.scheduling.shaping_decision import ImportanceRates, ShapingTarget, choose_shape

SHAPED_FROM: Final = "shaped-from"
_MAX_CONVERSIONS: Final = 1_000  # conversions in progress


def shape_for(
    delivery: ClientDelivery,
    link: LinkEstimator,
    outbox: Outbox,
    flows: ImportanceRates,
    now_ms: int,
) -> ShapingTarget | None:
    """How to shape `delivery` to meet its receiver's preferences in time; None: not at all."""
    grant = delivery.grant
    rate_bps = link.capacity_bps()
    if rate_bps:
        rate_bps = flows.available_bps(delivery.importance, rate_bps, outbox.discipline, now_ms)
    left_ms = max(delivery.expires_ms - now_ms, 1) if delivery.expires_ms else 0
    if grant.leaves_ms:
        left_ms = min(left_ms, grant.leaves_ms) if left_ms else grant.leaves_ms
    return choose_shape(
        grant.shaping,
        grant.max_bytes,
        grant.max_pixels,
        len(delivery.message.payload),
        left_ms,
        rate_bps,
        link.outstanding_bytes + sum(outbox.bytes_waiting()[delivery.importance :]),
    )


class ShapingOrder(WorkerOrder):
    """One conversion and the deliveries that wait for it."""

    def __init__(
        self, context: BrokerContext, shape: ShapingTarget, delivery: ClientDelivery
    ) -> None:
        super().__init__(delivery.message, delivery.importance, delivery.expires_ms)
        self.context = context
        self.shape = shape
        self.waiters: list[ShapingWaiter] = []

    def finish(self, message: MqttMessage | None) -> None:
        """Pass the shaped message on; None if the conversion failed."""
        self.context.shapings.pop((id(self.message), self.shape), None)
        if message is not None:
            if self.message.shaped is None:
                self.message.shaped = {}
            self.message.shaped[self.shape] = message
        for held in self.waiters:
            held.on_shaped(message)

    def fail(self) -> None:
        self.finish(None)


def shaped_message(
    message: MqttMessage, payload: bytes, user: tuple[tuple[str, str], ...]
) -> MqttMessage:
    """`message` with another payload or other attributes, marked as shaped.

    Further facts about a kept event are retained.
    """
    properties = replace(
        forwarded_properties(message.properties),
        user=(*user, (SHAPED_FROM, str(len(message.payload)))),
        message_expiry_s=message.properties.message_expiry_s,
    )
    user_properties = () if message.event_number >= 0 else read_block(message.block).user
    user_properties = tuple(each for each in user_properties if each[0].startswith(OWN_PREFIX))
    shaped = MqttMessage(
        message.channel,
        message.topic,
        payload,
        message.qos,
        message.is_retained,
        message.publisher,
        message.received_ms,
        properties,
        forwarded_block(replace(properties, user=(*properties.user, *user_properties))),
        message.expires_ms,
    )
    shaped.key = message.key
    shaped.number = message.number
    shaped.event_node = message.event_node
    shaped.event_number = message.event_number
    shaped.counts = message.counts
    shaped.shaped_from = len(message.payload)
    return shaped


def join_shaping(
    context: BrokerContext, delivery: ClientDelivery, shape: ShapingTarget, waiter: ShapingWaiter
) -> bool:
    """Add `waiter` to a conversion; False if too many are in progress."""
    # Not by event number: messages from disk or from another node may have the same.
    key = (id(delivery.message), shape)
    order = context.shapings.get(key)
    if order is None:
        if len(context.shapings) >= _MAX_CONVERSIONS:
            return False
        order = ShapingOrder(context, shape, delivery)
        context.shapings[key] = order
        context.orders.append(order)
    assert isinstance(order, ShapingOrder)
    order.waiters.append(waiter)
    return True
