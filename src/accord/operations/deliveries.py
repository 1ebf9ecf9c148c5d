"""What one client gets on each of its channels, and who uses one channel.

Counts come from the ledger, which has the outcome of each event at each destination; what policies
grant comes from the policies as they are now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from accord.core.model.channels import is_internal
from accord.core.monitoring.delivery_lines import DeliverySummary
from accord.core.monitoring.ledger import stored_name
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts

if TYPE_CHECKING:  # clients import this for the answers, without the broker
    from accord.core.broker.broker import Broker
    from accord.core.broker.session import MqttSession
    from accord.core.monitoring.delivery_lines import (
        ChannelDeliveries,
        ClientDeliveries,
        WaitingEvents,
    )
    from accord.core.policy.entity import Entity
    from accord.core.policy.grants import Grant
    from accord.core.router.fan_out import RouterSubscription

MAX_LINES: Final = 200
_NOTHING: Final = DeliverySummary()


class GrantedPreferences(Struct, frozen=True, kw_only=True):
    """What policies grant of preferences; 0 and "" mean none."""

    deadline_ms: int = 0
    shaping: str = ""
    max_bytes: int = 0
    max_pixels: int = 0
    is_replacing: bool = True


class ClientChannel(Struct, frozen=True, kw_only=True):
    """What a client got on one channel since `since_ms`: see `DeliverySummary`.

    `policy` decided the importance of the latest event. `preset` names the preferences, if one
    policy decided them all and has a preset. `waiting` events are queued, and the
    oldest came `waiting_ms` ago.
    """

    sources: tuple[str, ...] = ()
    sources_total: int = 0
    importance: int | None = None
    policy: str = ""
    preset: str = ""
    preferences: GrantedPreferences | None = None
    received: int = 0
    dropped: int = 0
    replaced: int = 0
    shaped: int = 0
    late: int = 0
    last_ms: int | None = None
    rate_hz: float = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    in_time: float | None = None
    waiting: int = 0
    waiting_bytes: int = 0
    waiting_ms: int = 0


class ChannelPublisher(Struct, frozen=True, kw_only=True):
    """A client that publishes to a channel.

    `published` counts its events since it connected to this node; of a client of another node,
    those that arrived here lately.
    """

    published: int = 0
    rate_hz: float = 0
    last_ms: int | None = None


class ChannelSubscriber(Struct, frozen=True, kw_only=True):
    """A client that subscribed to a channel, by the subscription of the highest QoS, and got it."""

    filter: str = ""
    where: str = ""
    xpath: str = ""
    qos: int = 0
    importance: int | None = None
    policy: str = ""
    received: int = 0
    dropped: int = 0
    replaced: int = 0
    shaped: int = 0
    late: int = 0
    last_ms: int | None = None
    rate_hz: float = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    in_time: float | None = None


def client_channels(
    node: NodePorts, client: str, deliveries: ClientDeliveries, asker: Asker, *, now_ms: int
) -> dict[str, ClientChannel]:
    """A line per channel that the client got events of, or subscribed to by name, worst first."""
    broker = node.broker
    session = None if broker is None else broker.sessions.get(client)
    since_ms = deliveries.since_ms(now_ms)
    lines = deliveries.worst(now_ms, MAX_LINES, asker.may_see)
    backlog = _backlog(session, now_ms)
    found = {}
    for channel, line in lines.items():
        waiting = backlog.get(channel)
        summary = line.summary(now_ms, since_ms, waiting)
        row = _client_channel(node, channel, session, summary, line.newest_source())
        found[channel] = _with_backlog(row, waiting)
    silent = (channel for channel in backlog if asker.may_see(channel) and not is_internal(channel))
    for channel in chain(silent, _idle_channels(session, asker)):
        if len(found) >= MAX_LINES:
            break
        if channel not in found:
            row = _client_channel(node, channel, session, None, "")
            found[channel] = _with_backlog(row, backlog.get(channel))
    return found


def _with_backlog(row: ClientChannel, backlog: WaitingEvents | None) -> ClientChannel:
    if backlog is None:
        return row
    return structs.replace(
        row,
        waiting=backlog.events,
        waiting_bytes=backlog.bytes,
        waiting_ms=backlog.oldest_ms,
    )


def _backlog(session: MqttSession | None, now_ms: int) -> Mapping[str, WaitingEvents]:
    """What waits for a client, by channel."""
    from accord.core.broker.delivery_accounting import backlog_by_channel  # noqa: PLC0415

    if session is None:
        return {}
    return backlog_by_channel(session.outbox, now_ms)


def _idle_channels(session: MqttSession | None, asker: Asker) -> Iterable[str]:
    """The channels that a client subscribed to by name."""
    if session is None:
        return
    for each in islice(session.subscriptions.values(), 10 * MAX_LINES):
        name = each.pattern
        if "+" in name or "#" in name or is_internal(name):
            continue
        if asker.may_see(name) and not (each.denied and each.denies(name)):
            yield name


def _client_channel(
    node: NodePorts,
    channel: str,
    session: MqttSession | None,
    summary: DeliverySummary | None,
    source: str,
) -> ClientChannel:
    grant = None if session is None else _grant(node, channel, session, source)
    importance, policy = _decision(summary, grant)
    known = summary or _NOTHING
    return ClientChannel(
        sources=known.sources,
        sources_total=known.sources_total,
        importance=importance,
        policy=policy,
        preset="" if grant is None else _preset(node, grant),
        preferences=None if grant is None else _preferences(grant),
        received=known.received,
        dropped=known.dropped,
        replaced=known.replaced,
        shaped=known.shaped,
        late=known.late,
        last_ms=known.last_ms,
        rate_hz=known.rate_hz,
        p50_ms=known.p50_ms,
        p95_ms=known.p95_ms,
        in_time=known.in_time,
    )


def _grant(node: NodePorts, channel: str, session: MqttSession, source: str) -> Grant | None:
    """What policies grant without a condition on single events."""
    if node.broker is None or len(channel) != len(stored_name(channel)):
        return None
    publisher = _entity(node.broker, source)
    return node.broker.router.standing_grant(channel, publisher, session.entity)


def _entity(broker: Broker, client: str) -> Entity | None:
    from accord.core.policy.entity import Entity  # noqa: PLC0415 (see above)

    if not client:
        return None
    session = broker.sessions.get(client)
    return Entity(client) if session is None else session.entity


def _decision(summary: DeliverySummary | None, grant: Grant | None) -> tuple[int | None, str]:
    """The importance of the latest event, and the policy that decided it."""
    if summary is None:
        return (None, "") if grant is None else (grant.importance, grant.policy)
    if not summary.policy and grant is not None and grant.importance == summary.importance:
        return summary.importance, grant.policy
    return summary.importance, summary.policy


def _preferences(grant: Grant) -> GrantedPreferences:
    return GrantedPreferences(
        deadline_ms=grant.deadline_ms,
        shaping=grant.shaping,
        max_bytes=grant.max_bytes,
        max_pixels=grant.max_pixels,
        is_replacing=grant.is_replacing,
    )


def _preset(node: NodePorts, grant: Grant) -> str:
    """The name of the preferences, if one policy decided them and has a name for them."""
    deciding = {grant.deadline_policy, grant.shaping_policy} - {""}
    if node.policies is None or len(deciding) != 1:
        return ""
    policy = node.policies.policy_set.policy(deciding.pop())
    return policy.preferences if policy is not None and isinstance(policy.preferences, str) else ""


def channel_subscribers(
    node: NodePorts, channel: str, deliveries: ChannelDeliveries, *, now_ms: int
) -> tuple[dict[str, ChannelSubscriber], int]:
    """The worst served clients of a channel, those without events last, and how many there are."""
    from accord.core.router.subscribers import client_subscriptions  # noqa: PLC0415

    best: dict[str, RouterSubscription] = {}
    if node.broker is not None:
        for each in client_subscriptions(node.broker.router, channel):
            known = best.get(each.receiver.name)
            if known is None or each.qos > known.qos:
                best[each.receiver.name] = each
    # The ledger shortens long names.
    names = {stored_name(name): name for name in best}
    since_ms = deliveries.since_ms(now_ms)
    found: dict[str, ChannelSubscriber] = {}
    for stored, line in deliveries.worst(now_ms, MAX_LINES).items():
        name = names.get(stored, stored)
        summary = line.summary(now_ms, since_ms)
        found[name] = _subscriber(node, channel, best.get(name), summary)
    for name, subscription in best.items():
        if len(found) >= MAX_LINES:
            break
        if name not in found:
            found[name] = _subscriber(node, channel, subscription, None)
    gone = sum(stored not in names for stored in deliveries.lines)
    return found, len(best) + gone


def _subscriber(
    node: NodePorts,
    channel: str,
    subscription: RouterSubscription | None,
    summary: DeliverySummary | None,
) -> ChannelSubscriber:
    grant = None
    if subscription is not None and node.broker is not None:
        router = node.broker.router
        grant = router.standing_grant(channel, None, subscription.receiver.entity)
    importance, policy = _decision(summary, grant)
    known = summary or _NOTHING
    return ChannelSubscriber(
        filter="" if subscription is None else _filter(subscription),
        where="" if subscription is None else subscription.where,
        xpath="" if subscription is None else subscription.xpath,
        qos=0 if subscription is None else subscription.qos,
        importance=importance,
        policy=policy,
        received=known.received,
        dropped=known.dropped,
        replaced=known.replaced,
        shaped=known.shaped,
        late=known.late,
        last_ms=known.last_ms,
        rate_hz=known.rate_hz,
        p50_ms=known.p50_ms,
        p95_ms=known.p95_ms,
        in_time=known.in_time,
    )


def _filter(subscription: RouterSubscription) -> str:
    group = subscription.group
    return f"$share/{group}/{subscription.pattern}" if group else subscription.pattern


def channel_publishers(
    node: NodePorts, channel: str, deliveries: ChannelDeliveries, *, now_ms: int
) -> tuple[dict[str, ChannelPublisher], int]:
    """The clients that publish to a channel, the busiest first, and how many there are.

    A client of this node that disconnected is no longer among them.
    """
    published = dict(deliveries.arrived)
    if node.broker is not None:
        for session in node.broker.sessions.values():
            connection = session.connection
            if connection is None or connection.publisher is None:
                continue
            count = connection.publisher.published_to(channel)
            if count:
                published[session.name] = count
    rates = deliveries.publishing.sample(published, now_ms=now_ms)
    busiest = sorted(published, key=lambda name: (-rates.get(name, 0.0), -published[name], name))
    found = {
        name: ChannelPublisher(
            published=published[name],
            rate_hz=rates.get(name, 0.0),
            last_ms=deliveries.published_ms.get(stored_name(name))
            or deliveries.publishing.changed_ms(name),
        )
        for name in busiest[:MAX_LINES]
    }
    return found, len(published)
