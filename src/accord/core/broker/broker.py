"""The MQTT broker of a node: sessions, their subscriptions, and retained messages.

A session outlives its connection for the expiry interval its client requested. Its will is
published when the connection ends without a DISCONNECT: at once, or after the will delay unless the
client reconnects first, and in any case when the session ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from accord.core.broker import session_records
from accord.core.broker.broker_context import BrokerContext, ConnectionPort
from accord.core.broker.catch_up import CatchUp
from accord.core.broker.client_negotiation import ClientNegotiation, SubscribeExpectations
from accord.core.broker.cut_through import CutThroughLog
from accord.core.broker.feedback import FeedbackHandler
from accord.core.broker.kept_messages import journal_form
from accord.core.broker.message import MqttMessage
from accord.core.broker.overlay_bridge import OverlayBridge
from accord.core.broker.persistent_history import HistorySubscriptions, Progress
from accord.core.broker.session import MqttSession
from accord.core.broker.subscription_admission import SubscriptionAdmission
from accord.core.channels.history.messages import HistorySelector
from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import EventError, PredicateError
from accord.core.model.units import NOW, parse_time
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.event_mapping import DEADLINE, KEY
from accord.core.mqtt.packets import TopicFilter, Will
from accord.core.mqtt.properties import NO_PROPERTIES, OWN_PREFIX, Properties, forwarded_block
from accord.core.mqtt.wire import string_bytes
from accord.core.policy.policies import Entity, Grant, Policies
from accord.core.policy.policy_set import PolicySet
from accord.core.predicates.predicate import Predicate, parse, parse_xpath
from accord.core.predicates.xpath import INLINE_COST
from accord.core.router.fan_out import DeferredMatchError, PublisherFanOut, RouterSubscription
from accord.core.router.limits import Limits
from accord.core.router.message import Message
from accord.core.router.retained import RetainedMessages
from accord.core.router.router import Router
from accord.core.scheduling.strategies import strategy_of
from accord.core.scheduling.timers import Timer, Timers

FOREVER: Final = 4_294_967_295  # session expiry interval that never elapses, in seconds
SHARED: Final = "$share/"
TOO_COSTLY: Final = "condition too costly"
_MAX_CACHED_PREDICATES: Final = 1_000
_MAX_CATCH_UPS: Final = 1_000  # subscriptions catching up on history at a time
_MAX_CATCH_UPS_PER_CLIENT: Final = 20
_MAX_RETAINED_COST: Final = 10_000  # a millisecond at worst: there may be many retained messages


class ClientConnection(ConnectionPort):
    """A connection that the broker can close."""

    __slots__ = ()

    def end(self, reason: Reason, problem: str = "", ended: str = "") -> None:
        raise NotImplementedError


class SubscribeRefusal:
    """Why a subscription was not accepted."""

    def __init__(self, reason: Reason, problem: str) -> None:
        self.reason = reason
        self.problem = problem


class SubscriptionPredicate:
    """The predicate of a subscription with its text, or the reason it was refused."""

    def __init__(
        self,
        predicate: Predicate | None = None,
        where: str = "",
        xpath: str = "",
        refusal: SubscribeRefusal | None = None,
    ) -> None:
        self.predicate = predicate
        self.where = where
        self.xpath = xpath
        self.refusal = refusal
        self.is_new = False  # whether its text was parsed just now, which is slow

    @staticmethod
    def parse(where: str, xpath: str) -> SubscriptionPredicate:
        """Raises PredicateError if the text is invalid."""
        if where:
            return SubscriptionPredicate(parse(where), where)
        return (
            SubscriptionPredicate(parse_xpath(xpath), xpath=xpath)
            if xpath
            else SubscriptionPredicate()
        )


class HistoryStart:
    """Where a subscription starts in history, or why that could not be parsed."""

    def __init__(self, since_ms: int, problem: str, is_now: bool = False) -> None:
        self.since_ms = since_ms
        self.problem = problem
        self.is_now = is_now  # live events only, no history


class Broker:
    def __init__(
        self,
        limits: Limits,
        *,
        now_ms: int,
        kept: list[str] | None = None,
        is_durable: bool = False,
        node: str = "",
        groups_of: Callable[[str], tuple[str, ...]] | None = None,
        denied_to: Callable[[str, str], tuple[str, ...]] | None = None,
        new_client_id: Callable[[], str],
    ) -> None:
        self.limits = limits
        self.router = Router(kept or [], Policies(PolicySet()), match_limit=limits.match_work)
        self.context = BrokerContext(
            limits, self.router, is_durable=is_durable, node=node, now_ms=now_ms
        )
        self.groups_of = groups_of
        self.denied_to = denied_to  # filters denied to a client, by user and client ID
        self.cut_throughs = CutThroughLog(self.context)
        self.timers = Timers()
        self.new_client_id = new_client_id
        self.node = Entity("", node=node)
        self.sessions: dict[str, MqttSession] = {}
        # Subscriptions that catch up on history.
        self.catch_ups: dict[RouterSubscription, CatchUp] = {}
        self._predicates: dict[tuple[str, str], SubscriptionPredicate] = {}
        self.bridge: OverlayBridge | None = None  # set once the node is part of an overlay
        self.quality: ClientNegotiation | None = None  # set if quality is negotiated
        self.admission: SubscriptionAdmission | None = None  # set if subscriptions are admitted
        self.feedback: FeedbackHandler | None = None  # set if receivers may send feedback
        self.histories: HistorySubscriptions | None = None  # set if channels may be persistent
        # Subscriptions to persistent channels recovered after a restart, until `histories` resumes
        # them.
        self.recovered_histories: dict[RouterSubscription, tuple[MqttSession, str, Progress]] = {}
        self.retained = RetainedMessages(
            messages_limit=limits.retained_messages, bytes_limit=limits.retained_bytes
        )

    def advance(self, *, now_ms: int) -> None:
        self.context.now_ms = now_ms
        self.timers.advance(now_ms)

    def run_task(self) -> bool:
        """Run the next task; False if none is queued."""
        task = self.context.tasks.take()
        if task is None:
            return False
        task.run()
        return True

    def switch(self, policy_set: PolicySet, policies: Policies) -> None:
        """Apply a policy set to everything that is open, from now on."""
        discipline = self.context.discipline
        discipline.change(strategy_of(policy_set.strategy), list(policy_set.weights))
        self.context.is_shaping = policy_set.shaping
        self.router.switch(policies)

    def set_owner(self, session: MqttSession, user: str) -> None:
        """Set the user that policies see as the session's owner."""
        session.owner = user
        groups = () if self.groups_of is None else self.groups_of(user)
        entity = session.entity
        if (entity.user, entity.groups) != (user, groups):
            session.entity = Entity(session.name, user, groups, self.context.node)
            session.invalidate_fan_outs()

    def grant(self, message: Message, session: MqttSession) -> Grant:
        """What policies grant to a session for a message published earlier."""
        publisher = Entity(message.publisher, node=self.context.node)
        return self.router.grant(message, publisher, session.entity)

    def fan_out_for(self, publisher: Entity, channel: str) -> PublisherFanOut:
        return PublisherFanOut(publisher, self.router.fan_out(channel))

    def open_session(self, client_id: str, *, is_clean: bool) -> tuple[MqttSession, bool] | None:
        """Return the client's session and whether it existed before; None if there are too many.

        A connection that still has the session is closed with SESSION_TAKEN_OVER.
        """
        ended = 0
        session = self.sessions.get(client_id)
        if session is not None:
            if isinstance(session.connection, ClientConnection):
                session.connection.end(Reason.SESSION_TAKEN_OVER, "the client connected again")
            session = self.sessions.get(client_id)
        if session is not None:
            if not is_clean:
                session.will = None
                session.will_due_ms = 0
                session.ends_ms = 0
                return session, True
            ended = session.predecessor_position
            if session.is_durable and self.context.is_durable:
                ended = self.context.appended + 1
            self.end_session(session)
        if len(self.sessions) >= self.limits.sessions:
            return None
        session = MqttSession(client_id, self.context)
        session.predecessor_position = ended
        self.sessions[client_id] = session
        return session, False

    def apply_connect(self, session: MqttSession, expiry_s: int, will: Will | None) -> None:
        """Apply the session expiry and the will from the client's CONNECT."""
        was_durable = session.is_durable
        session.expiry_s = min(expiry_s, self.limits.session_expiry_s)
        session.is_durable = session.expiry_s > 0
        session.will = will
        if session.is_durable:
            self.context.record(
                session_records.SessionOpened(
                    session.name, session.version, session.expiry_s, will, session.owner
                )
            )
        elif was_durable:
            self.context.record(session_records.SessionEnded(session.name))

    def detach_session(self, session: MqttSession, *, is_will_wanted: bool, expiry_s: int) -> None:
        """Detach the session from its closed connection; end it, or set its timers."""
        now_ms = self.context.now_ms
        session.detach()
        if self.quality is not None:
            self.quality.on_offline(session)
        session.expiry_s = min(expiry_s, self.limits.session_expiry_s)
        will = session.will
        delay_ms = 0
        if will is not None and is_will_wanted:
            delay_ms = min(will.properties.will_delay_s or 0, session.expiry_s) * 1000
            session.will_due_ms = now_ms + delay_ms
        else:
            session.will = None
        if session.expiry_s == 0:
            self.end_session(session)
            return
        if delay_ms == 0:
            self._publish_will(session)
        session.ends_ms = 0 if session.expiry_s == FOREVER else now_ms + session.expiry_s * 1000
        self.set_timer(session)
        self.context.record(self.left_record(session))

    def set_timer(self, session: MqttSession) -> None:
        """Schedule the delayed will or the expiry of a session without connection."""
        due_ms = session.ends_ms
        if session.will_due_ms and (not due_ms or session.will_due_ms < due_ms):
            due_ms = session.will_due_ms
        if due_ms:
            if session.timer is None:
                session.timer = SessionTimer(self, session)
            self.timers.set(session.timer, due_ms)

    def end_session(self, session: MqttSession) -> None:
        if session.will is not None and session.connection is None:
            self._publish_will(session)
        if self.bridge is not None:
            for subscription in session.subscriptions.values():
                self.bridge.on_unsubscribed(subscription)
        for subscription in session.subscriptions.values():
            self._end_history(subscription)
        if self.quality is not None:
            self.quality.on_session_ended(session)
        if self.admission is not None:
            self.admission.on_session_ended(session)
        session.abandon()
        if session.timer is not None:
            self.timers.cancel(session.timer)
        if self.sessions.get(session.name) is session:
            del self.sessions[session.name]
        if session.is_durable:
            self.context.record(session_records.SessionEnded(session.name))
            # Late results of its messages must not be recorded for the session that succeeds it.
            session.is_durable = False

    def publish_due_will(self, session: MqttSession) -> None:
        """Publish a will whose delay has elapsed before the client reconnected."""
        self._publish_will(session)
        if session.is_durable:
            self.context.record(self.left_record(session))

    def publish(
        self, message: MqttMessage, fan_out: PublisherFanOut, is_kept_already: bool = False
    ) -> int:
        """Deliver, retain and keep `message`; returns the number of receivers.

        Raises EventError, before any effect, if its attributes are needed and invalid.
        """
        route = fan_out.channel_fan_out
        if route.is_kept:
            message.event()
        counters = self.context.counters
        bridge = self.bridge
        if (
            route.traits.is_persistent
            and self.histories is not None
            and self.histories.before_publish(message, route, is_kept_already=is_kept_already)
        ):
            fan_out.renew(self.router.fan_out(message.channel))
            route = fan_out.channel_fan_out
        is_ordered = route.traits.is_ordered
        if not (
            self.context.assigns_event_ids or is_ordered or bridge is None or bridge.is_delivering
        ):
            bridge.assign_event_id(
                message
            )  # before it is queued for any receiver or written to disk
        if is_ordered and bridge is not None and not bridge.is_delivering:
            bridge.send(message, [], fan_out.grant.importance)
            reached = 1
        elif route.is_watched and self.quality is not None:
            reached = self.quality.monitor.publish(message, fan_out)
        else:
            reached = self.router.publish(message, fan_out)
        if bridge is not None:
            if not reached and route.traits.goes_up and not bridge.is_delivering:
                reached = 1  # the parent knows whether there are receivers
            bridge.on_published(message, fan_out.grant.importance)
        if route.is_kept and not is_kept_already:
            if bridge is None or not bridge.is_delivering:
                self.context.keep(journal_form(message))
            elif route.is_kept_always:
                self.context.keep(journal_form(message, bridge.source))
        if message.is_retained:
            self.retain(message)
        if reached:
            counters.matched += 1
        else:
            counters.unmatched += 1
        return reached

    def retain(self, message: MqttMessage) -> None:
        if not message.payload:
            # The removal of an earlier retained message may not be on disk yet, but the
            # acknowledgement of this one promises it.
            self.remove_retained(message.channel)
        elif self.retained.has_room(message):
            self.retained.set(message)
            if self.context.is_durable:
                self.context.record(session_records.Retained(self.context.store(message)))
        else:
            self.context.counters.count_shed("no room to retain", message.publisher)

    def remove_retained(self, channel: str) -> None:
        if self.retained.remove(channel) or self.context.has_pending():
            self.context.record(session_records.RetainedCleared(channel))

    def publish_as_node(self, channel: str, payload: bytes) -> None:
        """Publish on behalf of the node; the message is retained while the node runs."""
        message = make_message(channel, payload, 0, False, "", self.context.now_ms, NO_PROPERTIES)
        self.retained.set(message)
        self.send_local(message)

    def send_local(self, message: MqttMessage) -> None:
        """Deliver a message of the node itself to local receivers."""
        fan_out = self.fan_out_for(self.node, message.channel)
        self.context.assign_number(message, fan_out.channel_fan_out.counts)
        self.router.publish(message, fan_out)
        if self.bridge is not None:
            self.bridge.clear_interested()

    def subscribe(
        self,
        session: MqttSession,
        topic_filter: TopicFilter,
        identifier: int,
        condition: SubscriptionPredicate,
        since: HistoryStart | None = None,
        expectations: SubscribeExpectations | None = None,
    ) -> SubscribeRefusal | None:
        """Add or replace one subscription, optionally starting in history."""
        group, pattern = split_shared(topic_filter.pattern)
        known = session.subscriptions.get(topic_filter.pattern)
        refusal = self._refusal(session, pattern, known, condition)
        pasts = self.histories
        if pasts is not None and (group or not pasts.selects(pattern)):
            pasts = None
        begin = since
        if pasts is not None and since is not None and not since.problem:
            if since.is_now:
                pasts = begin = None
            elif self.context.history_problem:
                begin = None  # other channels have no history
        if refusal is None and begin is not None:
            refusal = self._history_refusal(session, begin, topic_filter.pattern)
        if refusal is None and expectations is not None and self.quality is not None:
            problem = self.quality.expectations_problem(
                session, topic_filter.pattern, pattern, expectations
            )
            if problem:
                refusal = SubscribeRefusal(Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem)
        if refusal is not None:
            return refusal
        going_on = None
        if known is not None:
            if pasts is not None and since is None:
                # A subscription made again resumes from its progress.
                wanted = HistorySelector(pattern, condition.where, condition.xpath)
                going_on = pasts.detach(known, wanted)
            self.remove_subscription(session, topic_filter.pattern)
        subscription = RouterSubscription(
            session,
            pattern,
            group=group,
            qos=topic_filter.qos,
            is_local_excluded=topic_filter.no_local,
            keeps_retained_flag=topic_filter.retain_as_published,
            identifier=identifier,
            predicate=condition.predicate,
            where=condition.where,
            xpath=condition.xpath,
        )
        if begin is not None:
            self.add_catch_up(session, topic_filter.pattern, subscription).start(begin.since_ms)
        if pasts is not None and going_on is not None:
            pasts.take_over(going_on, subscription)
        elif pasts is not None:
            since_ms = 0 if since is None else since.since_ms
            pasts.start(session, topic_filter.pattern, subscription, since_ms)
        self.add_subscription(session, topic_filter.pattern, subscription)
        if expectations is not None and self.quality is not None:
            problem = self.quality.on_subscribed(
                session, topic_filter.pattern, pattern, expectations
            )
            if problem:
                self.unsubscribe(session, topic_filter.pattern)
                return SubscribeRefusal(Reason.QUOTA_EXCEEDED, problem)
        if session.is_durable and self.context.is_durable:
            self.context.record(self.subscribed_record(session, topic_filter.pattern))
        return None

    def add_catch_up(
        self, session: MqttSession, name: str, subscription: RouterSubscription
    ) -> CatchUp:
        """Make a subscription that is about to be added start in history."""
        catch_up = CatchUp(session, name, subscription)
        subscription.receiver = catch_up
        self.catch_ups[subscription] = catch_up
        return catch_up

    def step_catch_ups(self) -> None:
        """Advance subscriptions that catch up; make those that have caught up ordinary ones."""
        for subscription, catch_up in list(self.catch_ups.items()):
            session = catch_up.session
            if catch_up.is_removed():
                del self.catch_ups[subscription]
                continue
            if catch_up.step():
                del self.catch_ups[subscription]
                catch_up.is_recorded = False
            if not catch_up.is_recorded:
                catch_up.is_recorded = True
                if session.is_durable and self.context.is_durable:
                    self.context.record(self.subscribed_record(session, catch_up.pattern))

    def history_start(self, properties: Properties) -> HistoryStart | None:
        """The start given by the user property `since` of a SUBSCRIBE, if any."""
        texts = [text for name, text in properties.user if name == "since"]
        if not texts:
            return None
        if len(texts) > 1:
            return HistoryStart(0, "expected one user property `since`, got several")
        try:
            is_now = texts[0].strip() == NOW
            return HistoryStart(parse_time(texts[0], now_ms=self.context.now_ms), "", is_now)
        except ValueError as error:
            return HistoryStart(0, f"since: {error}")

    def _history_refusal(
        self, session: MqttSession, since: HistoryStart, pattern: str
    ) -> SubscribeRefusal | None:
        """Why a subscription can't start in history; None if it can."""
        if since.problem:
            return SubscribeRefusal(Reason.IMPLEMENTATION_SPECIFIC_ERROR, since.problem)
        if pattern.startswith("$"):
            problem = f"since: expected channels that are kept, got {pattern}"
            return SubscribeRefusal(Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem)
        if self.context.history_problem:
            problem = f"since: {self.context.history_problem}"
            return SubscribeRefusal(Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem)
        of_client = sum(each.session is session for each in self.catch_ups.values())
        if of_client >= _MAX_CATCH_UPS_PER_CLIENT or len(self.catch_ups) >= _MAX_CATCH_UPS:
            problem = f"since: {of_client} of your subscriptions still replay history, wait"
            return SubscribeRefusal(Reason.QUOTA_EXCEEDED, problem)
        return None

    def refusal_of(
        self, session: MqttSession, topic_filter: TopicFilter, condition: SubscriptionPredicate
    ) -> SubscribeRefusal | None:
        """Why a subscription is refused regardless of resources; None if it is not."""
        known = session.subscriptions.get(topic_filter.pattern)
        return self._refusal(session, split_shared(topic_filter.pattern)[1], known, condition)

    def _refusal(
        self,
        session: MqttSession,
        pattern: str,
        known: RouterSubscription | None,
        condition: SubscriptionPredicate,
    ) -> SubscribeRefusal | None:
        """Why a subscription is refused; None if it is accepted."""
        limits = self.limits
        if problem := problem_with_filter(pattern):
            return SubscribeRefusal(Reason.TOPIC_FILTER_INVALID, problem)
        if pattern.count("/") >= limits.channel_levels:
            problem = f"expected at most {limits.channel_levels} levels"
            return SubscribeRefusal(Reason.TOPIC_FILTER_INVALID, problem)
        if condition.refusal is not None:
            return condition.refusal
        had_predicate = known is not None and known.predicate is not None
        if known is None and len(session.subscriptions) >= limits.subscriptions_per_client:
            most = limits.subscriptions_per_client
            return SubscribeRefusal(
                Reason.QUOTA_EXCEEDED, f"{most} subscriptions are open, the most allowed"
            )
        is_more = condition.predicate is not None and not had_predicate
        if is_more and session.predicates >= limits.predicates_per_client:
            most = limits.predicates_per_client
            return SubscribeRefusal(
                Reason.QUOTA_EXCEEDED, f"{most} predicates are open, the most allowed"
            )
        return None

    def add_subscription(
        self, session: MqttSession, name: str, subscription: RouterSubscription
    ) -> None:
        subscription.denied = session.denied
        session.subscriptions[name] = subscription
        session.predicates += subscription.predicate is not None
        self.router.add(subscription)
        if self.bridge is not None:
            self.bridge.on_subscribed(subscription)

    def remove_subscription(self, session: MqttSession, name: str) -> bool:
        """Remove the subscription of `name`; False if there is none."""
        subscription = session.subscriptions.pop(name, None)
        if subscription is None:
            return False
        session.predicates -= subscription.predicate is not None
        self.router.remove(subscription)
        if self.bridge is not None:
            self.bridge.on_unsubscribed(subscription)
        if self.quality is not None:
            self.quality.on_unsubscribed(session, name)
        self.catch_ups.pop(subscription, None)
        self._end_history(subscription)
        return True

    def _end_history(self, subscription: RouterSubscription) -> None:
        self.recovered_histories.pop(subscription, None)
        if self.histories is not None:
            self.histories.end(subscription)

    def unsubscribe(self, session: MqttSession, pattern: str) -> bool:
        if self.admission is not None:
            self.admission.on_unsubscribed(session, pattern)
        if not self.remove_subscription(session, pattern):
            return False
        if session.is_durable:
            self.context.record(session_records.Unsubscribed(session.name, pattern))
        return True

    def predicate_of(self, properties: Properties) -> SubscriptionPredicate:
        """The predicate given by the user property `where` or `xpath` of a SUBSCRIBE."""
        texts = [each for each in properties.user if each[0] in ("where", "xpath")]
        if not texts:
            return SubscriptionPredicate()
        if len(texts) > 1:
            return _refused_predicate("expected one user property `where` or `xpath`, got several")
        name, text = texts[0]
        known = self._predicates.get(texts[0])
        if known is not None:
            known.is_new = False
            return known
        most = self.limits.predicate_characters
        if len(text) > most:
            return _refused_predicate(
                f"a predicate of {len(text)} characters, at most {most} accepted"
            )
        try:
            condition = SubscriptionPredicate.parse(
                *((text, "") if name == "where" else ("", text))
            )
        except PredicateError as error:
            condition = _refused_predicate(f"{text}: {error}")
        condition.is_new = True
        if len(self._predicates) >= _MAX_CACHED_PREDICATES:
            self._predicates.clear()
        self._predicates[texts[0]] = condition
        return condition

    def wants_retained(self, session: MqttSession, topic_filter: TopicFilter) -> bool:
        """Whether a subscription about to be added is to receive retained messages."""
        if split_shared(topic_filter.pattern)[0]:
            return False
        is_new = topic_filter.pattern not in session.subscriptions
        return topic_filter.retain_handling == 0 or (topic_filter.retain_handling == 1 and is_new)

    def send_retained(self, session: MqttSession, name: str) -> int:
        """Deliver retained messages to the subscription of `name`; returns their number."""
        subscription = session.subscriptions.get(name)
        if subscription is None:
            return 0
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        sent = 0
        has_past = self.histories is not None and self.histories.has(subscription)
        for message in self.retained.select(subscription.pattern, now_ms=self.context.now_ms):
            if subscription.is_local_excluded and message.publisher == session.name:
                continue
            if has_past and self.router.fan_out(message.channel).traits.is_persistent:
                continue  # it arrives as history
            if subscription.denied and subscription.denies(message.channel):
                continue
            if subscription.predicate is not None and not self._matches(
                subscription.predicate, message
            ):
                continue
            qos = min(subscription.qos, message.qos)
            session.deliver(message, qos, True, identifiers, self.grant(message, session))
            sent += 1
        if self.quality is not None and subscription.pattern.startswith("$"):
            self.quality.resend_states(session, subscription.pattern)
        return sent

    def _publish_will(self, session: MqttSession) -> None:
        will = session.will
        session.will = None
        session.will_due_ms = 0
        if will is None:
            return
        now_ms = self.context.now_ms
        properties = will.properties
        try:
            message = make_message(
                will.topic, will.payload, will.qos, will.retain, session.name, now_ms, properties
            )
            check_property_names(message)
            fan_out = self.fan_out_for(session.entity, will.topic)
            if self.feedback is not None:
                self.feedback.attach_receipt(message, session.owner, self.context.number + 1)
            self.context.assign_number(message, fan_out.channel_fan_out.counts)
            self.publish_inline(message, fan_out)
        except EventError:
            self.context.counters.count_shed("bad attributes", session.name)

    def republish(self, message: MqttMessage, publisher: Entity) -> None:
        """Publish a message that is already in the journal."""
        fan_out = self.fan_out_for(publisher, message.channel)
        message.counts = fan_out.channel_fan_out.counts
        with suppress(EventError):
            set_expiry_and_key(message)
            self.publish_inline(message, fan_out, is_kept_already=True)

    def publish_inline(
        self, message: MqttMessage, fan_out: PublisherFanOut, is_kept_already: bool = False
    ) -> None:
        """Publish without a task; predicates too costly to evaluate inline count as false."""
        if fan_out.channel_fan_out.has_predicates:
            document = message.document()
            if document is not None:
                document.defer(INLINE_COST)
        try:
            self.publish(message, fan_out, is_kept_already)
        except DeferredMatchError as heavy:
            self.context.counters.count_shed(TOO_COSTLY, message.publisher)
            for condition in heavy.document.deferred:
                heavy.document.remember(condition, None)
            self.publish(message, fan_out, is_kept_already)

    def _matches(self, predicate: Predicate, message: Message) -> bool:
        """Whether a retained message matches; predicates too costly to evaluate count as false."""
        try:
            document = message.document()
            if document is not None:
                document.defer(_MAX_RETAINED_COST)
            is_wanted = predicate.evaluate(message.values(), document) is True
            if document is not None and document.deferred:
                self.context.counters.count_shed(TOO_COSTLY, message.publisher)
            return is_wanted
        except EventError:
            return False

    def left_record(self, session: MqttSession) -> session_records.SessionLeft:
        left_ms = session.ends_ms - session.expiry_s * 1000 if session.ends_ms else 0
        return session_records.SessionLeft(
            session.name, session.expiry_s, left_ms, session.will_due_ms
        )

    def subscribed_record(self, session: MqttSession, pattern: str) -> session_records.Subscribed:
        subscription = session.subscriptions[pattern]
        catch_up = self.catch_ups.get(subscription)
        return session_records.Subscribed(
            session.name,
            pattern,
            subscription.qos,
            subscription.is_local_excluded,
            subscription.keeps_retained_flag,
            subscription.identifier,
            subscription.where,
            subscription.xpath,
            None if catch_up is None else catch_up.progress(),
            () if self.quality is None else self.quality.expectation_texts(session, pattern),
            self._progress(subscription),
        )

    def _progress(self, subscription: RouterSubscription) -> Progress | None:
        before = self.recovered_histories.get(subscription)
        if before is not None:
            return before[2]
        return None if self.histories is None else self.histories.progress(subscription)


class SessionTimer(Timer):
    """Publishes the delayed will of a session without connection, and expires the session."""

    __slots__ = (
        "broker",
        "session",
    )

    def __init__(self, broker: Broker, session: MqttSession) -> None:
        super().__init__()
        self.broker = broker
        self.session = session

    def fire(self, now: int) -> None:
        session = self.session
        if session.connection is not None:
            return
        if 0 < session.ends_ms <= now:
            self.broker.end_session(session)
            return
        if 0 < session.will_due_ms <= now:
            self.broker.publish_due_will(session)
        self.broker.set_timer(session)


def split_shared(pattern: str) -> tuple[str, str]:
    """Group and filter of `$share/GROUP/FILTER`; an empty group for any other pattern."""
    if not pattern.startswith(SHARED):
        return "", pattern
    group, _, rest = pattern[len(SHARED) :].partition("/")
    return group, rest


def make_message(
    channel: str,
    payload: bytes,
    qos: int,
    is_retained: bool,
    publisher: str,
    received_ms: int,
    properties: Properties,
) -> MqttMessage:
    """Build a message from its parts; raises EventError if its deadline is invalid."""
    block = b"" if properties is NO_PROPERTIES else forwarded_block(properties)
    message = MqttMessage(
        channel,
        string_bytes(channel),
        payload,
        qos,
        is_retained,
        publisher,
        received_ms,
        properties,
        block,
        0,
    )
    set_expiry_and_key(message)
    return message


def set_expiry_and_key(message: MqttMessage) -> None:
    """Set a message's expiry and key; raises EventError if its deadline is invalid."""
    properties = message.properties
    received_ms = message.received_ms
    due_ms = 0
    if properties.message_expiry_s is not None:
        due_ms = received_ms + properties.message_expiry_s * 1000
    for name, text in properties.user:
        if name == DEADLINE:
            if not (text.isascii() and text.isdigit() and len(text) <= 15):
                raise EventError(DEADLINE, f"expected whole milliseconds, got {text[:40]!r}")
            deadline_ms = received_ms + int(text)
            due_ms = min(due_ms, deadline_ms) if due_ms else deadline_ms
        elif name == KEY and not message.key:
            message.key = text
    message.expires_ms = due_ms


def check_property_names(message: MqttMessage) -> None:
    """Raises EventError if a client uses property names reserved for the node."""
    for name, _ in message.properties.user:
        if name.startswith(OWN_PREFIX):
            raise EventError(name[:80], f"names that begin with {OWN_PREFIX} are the node's own")


def _refused_predicate(problem: str) -> SubscriptionPredicate:
    return SubscriptionPredicate(
        refusal=SubscribeRefusal(Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem)
    )
