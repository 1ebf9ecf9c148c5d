"""Quality negotiation for a node's clients: their expectations, profiles and notifications.

A SUBSCRIBE may have user properties `expect`, each an expectation for all its filters; several are
alternatives. Everything else arrives as requests (`quality_requests`). The state of an expectation
is sent to its client, advice and usage to the client of a profile. Each kind has a channel of the
node; a client that has subscribed to it receives only what concerns itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from accord.core.broker.client_notifications import notify_client, notify_session
from accord.core.broker.quality_monitor import QualityMonitor
from accord.core.broker.session import MqttSession
from accord.core.model.channels import filter_selects
from accord.core.mqtt.properties import Properties
from accord.core.quality.action_log import ActionLog, QualityAction
from accord.core.quality.client_quality import (
    ClientExpectation,
    ClientProfile,
    ClientQuality,
    NegotiatedItem,
)
from accord.core.quality.expectations import (
    MAX_ALTERNATIVES,
    Expectation,
    Lifecycle,
    score_expectation,
)
from accord.core.quality.json_forms import (
    MAX_OWN_ID,
    ExpectationForm,
    Json,
    advice_form,
    parse_expectation,
    read_json,
    render_expectation,
    state_form,
    usage_form,
)
from accord.core.quality.matching import MatchState
from accord.core.quality.messages import (
    Advice,
    ApplyMechanism,
    MechanismStep,
    Notice,
    StateChanged,
    UsageChanged,
    WithdrawMechanism,
)
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.overlay_negotiation import TierNegotiation
from accord.core.quality.profiles import Profile, check_profile
from accord.core.quality.properties import Property, QualityError, Value
from accord.core.router.rights import ADVICE, EXPECTATIONS

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

EXPECT: Final = "expect"
MAX_PER_CLIENT: Final = 10_000  # expectations of a client, and also profiles
_MAX_STATES_SENT: Final = 1_000  # states sent to a new subscriber
_ITEMS_PER_STEP: Final = 50  # items settled per step when clients connect or leave


class SubscribeExpectations:
    """The expectations of a SUBSCRIBE, or why they could not be parsed."""

    def __init__(self, forms: tuple[ExpectationForm, ...], problem: str = "") -> None:
        self.forms = forms
        self.problem = problem


class NegotiationCounts(msgspec.Struct):
    """Counts since the start; `states` are those sent to clients."""

    advice: int = 0
    usages: int = 0
    states: int = 0
    mechanisms: int = 0


class ClientNegotiation:
    """Connects sessions to the negotiation; `clock_us` returns the overlay's time.

    Mechanisms that concern a publisher but not its events (another path) are passed to
    `on_mechanism`.
    """

    def __init__(
        self, broker: Broker, negotiation: Negotiation, clock_us: Callable[[], int]
    ) -> None:
        self.negotiation = negotiation
        self.tier_negotiation: TierNegotiation | None = (
            None  # set once the node is part of an overlay
        )
        self.counts = NegotiationCounts()
        self.clients: dict[str, ClientQuality] = {}
        self.monitor = QualityMonitor(
            broker, negotiation, clock_us, self.clients, self.handle_notices
        )
        self.on_mechanism: Callable[[ApplyMechanism], None] | None = None
        self.on_withdraw: Callable[[int], None] | None = None
        self.may_be_due = False  # whether something may have become due
        self.version = 0  # rises whenever something may have changed
        self.actions = ActionLog(negotiation.options.mechanism_timeout_us // 1_000)
        self._broker = broker
        self._clock_us = clock_us
        self._last_number = 0
        self._expectations: dict[str, ClientExpectation] = {}  # by their IDs in the negotiation
        self._due: dict[NegotiatedItem, bool] = {}  # to be settled
        self._ended: dict[str, ClientQuality] = {}  # with items that may be due

    # Subscriptions

    def parse_expectations(self, properties: Properties) -> SubscribeExpectations | None:
        """The user properties `expect` of a SUBSCRIBE, if there are any."""
        texts = [text for name, text in properties.user if name == EXPECT]
        if not texts:
            return None
        try:
            if len(texts) > MAX_ALTERNATIVES:
                problem = f"at most {MAX_ALTERNATIVES} accepted, got {len(texts)}"
                raise QualityError(EXPECT, problem)
            registry = self.negotiation.registry
            expectations = tuple(
                parse_expectation(read_json(text, EXPECT), registry) for text in texts
            )
        except QualityError as error:
            return SubscribeExpectations((), str(error))
        return SubscribeExpectations(expectations)

    def expectations_problem(
        self, session: MqttSession, name: str, pattern: str, expectations: SubscribeExpectations
    ) -> str:
        """Why a subscription can't have these expectations instead of its present ones."""
        if expectations.problem:
            return expectations.problem
        if pattern.startswith("$"):
            return ""
        holder = self.clients.get(session.name)
        expected = {} if holder is None else holder.expected
        mine = () if holder is None else holder.by_subscription.get(name, ())
        if len(expected) - len(mine) + len(expectations.forms) > MAX_PER_CLIENT:
            return f"expect: you have {MAX_PER_CLIENT} expectations already"
        ids: set[str] = set()
        for expectation in expectations.forms:
            if expectation.id and (
                expectation.id in ids or (expectation.id in expected and expectation.id not in mine)
            ):
                return f"expect.id: {expectation.id!r} is another expectation's"
            ids.add(expectation.id)
            try:
                score_expectation(
                    _expectation(expectation, "x", "x", pattern), self.negotiation.registry
                )
            except QualityError as error:
                return _with_own_id(error, "x", expectation.id)
        return ""

    def on_subscribed(
        self, session: MqttSession, name: str, pattern: str, expectations: SubscribeExpectations
    ) -> str:
        """Register the expectations of a new subscription; returns why that failed, or "".

        System channels, which may be in the same packet, have no expectations.
        """
        if pattern.startswith("$"):
            return ""
        for expectation in expectations.forms:
            try:
                self.register(session, name, pattern, expectation)
            except QualityError as error:
                self.on_unsubscribed(session, name)
                return str(error)
        return ""

    def restore(self, session: MqttSession, name: str, pattern: str, texts: Iterable[str]) -> None:
        """Register the expectations of a recovered session; unreadable ones are skipped."""
        for text in texts:
            try:
                form = read_json(text, EXPECT)
                is_suspended = form.pop("suspended", False) is True
                expectation = parse_expectation(form, self.negotiation.registry)
                holder = self._client(session)
                holder.is_offline = session.connection is None
                expected = self.register(session, name, pattern, expectation)
            except QualityError:
                continue
            expected.is_suspended = is_suspended

    def expectation_texts(self, session: MqttSession, name: str) -> tuple[str, ...]:
        """The expectations of a subscription, in the form `restore` takes."""
        holder = self.clients.get(session.name)
        if holder is None:
            return ()
        texts = []
        for each in holder.by_subscription.get(name, {}).values():
            form = render_expectation(msgspec.structs.replace(each.form, id=each.id))
            if each.is_suspended:
                form["suspended"] = True
            texts.append(msgspec.json.encode(form).decode())
        return tuple(texts)

    def on_unsubscribed(self, session: MqttSession, name: str) -> None:
        holder = self.clients.get(session.name)
        if holder is None:
            return
        for expected in list(holder.by_subscription.get(name, {}).values()):
            self._revoke(holder, expected)
        self._remove_if_empty(holder)

    # Sessions

    def on_offline(self, session: MqttSession) -> None:
        """The client is offline, temporarily or for good."""
        holder = self.clients.get(session.name)
        if holder is not None and not holder.is_offline:
            holder.is_offline = True
            self._schedule_all(holder)

    def on_online(self, session: MqttSession) -> None:
        holder = self.clients.get(session.name)
        if holder is not None and holder.is_offline:
            holder.is_offline = False
            self._schedule_all(holder)

    def on_session_ended(self, session: MqttSession) -> None:
        holder = self.clients.pop(session.name, None)
        if holder is None:
            return
        self._schedule_all(holder)
        for expected in holder.expected.values():
            expected.is_revoked = True
        for declared in holder.declared.values():
            declared.is_revoked = True
        self._ended[session.name] = holder

    # Expectations

    def register(
        self, session: MqttSession, name: str, pattern: str, form: ExpectationForm
    ) -> ClientExpectation:
        """Register an expectation; raises QualityError if it is refused."""
        holder = self._client(session)
        try:
            if len(holder.expected) >= MAX_PER_CLIENT:
                raise QualityError("expectations", f"you have {MAX_PER_CLIENT} already")
            own_id = form.id or holder.new_id(name, MAX_OWN_ID)
            if own_id in holder.expected:
                problem = "registered already; update it, or choose another id"
                raise QualityError(f"expectation {own_id!r}", problem)
            self._last_number += 1
            key = f"{own_id}\n{self._last_number}"
            expectation = _expectation(form, key, holder.key(name), pattern)
            expected = ClientExpectation(holder, own_id, name, form, expectation)
            # Entered before it is settled: the resulting notices refer to it.
            self._expectations[key] = expected
            holder.add(expected)
            try:
                self._reconcile(expected)
            except QualityError as error:
                holder.remove(expected)
                del self._expectations[key]
                raise QualityError(EXPECT, _with_own_id(error, key, own_id)) from None
        finally:
            self._remove_if_empty(holder)
        return expected

    def update(self, session: MqttSession, own_id: str, form: ExpectationForm) -> None:
        expected = self.find(session, own_id)
        old = expected.expectation
        new = _expectation(form, old.id, old.subscription, old.channel)
        try:
            score_expectation(new, self.negotiation.registry)
            notices = self.negotiation.update(new, now_us=self._clock_us())
        except QualityError as error:
            raise QualityError(EXPECT, _with_own_id(error, old.id, own_id)) from None
        expected.form, expected.expectation = form, new
        self.handle_notices(notices)

    def suspend(self, session: MqttSession, own_id: str) -> None:
        expected = self.find(session, own_id)
        if expected.is_suspended:
            raise QualityError(f"expectation {own_id!r}", "can't suspend what is suspended")
        expected.is_suspended = True
        self._reconcile(expected)

    def resume(self, session: MqttSession, own_id: str) -> None:
        expected = self.find(session, own_id)
        if not expected.is_suspended:
            raise QualityError(f"expectation {own_id!r}", "can't resume what is active")
        expected.is_suspended = False
        self._reconcile(expected)

    def revoke(self, session: MqttSession, own_id: str) -> None:
        expected = self.find(session, own_id)
        self._revoke(expected.holder, expected)
        self._remove_if_empty(expected.holder)

    def define(self, *properties: Property) -> None:
        """Define all properties or none; raises QualityError if one has another meaning in use."""
        self.handle_notices(self.negotiation.define(*properties, now_us=self._clock_us()))

    # Profiles

    def declare(self, session: MqttSession, profile: Profile, source: str) -> None:
        """Set the client's profile for a channel, replacing any earlier one."""
        holder = self._client(session)
        try:
            known = holder.declared.get(profile.channel)
            if known is not None:
                check_profile(profile, self.negotiation.registry)
                self._update_profile(known, profile, source)
                return
            if len(holder.declared) >= MAX_PER_CLIENT:
                raise QualityError("profiles", f"you have {MAX_PER_CLIENT} already")
            check_profile(profile, self.negotiation.registry)
            declared = ClientProfile(holder, profile, source)
            holder.declared[profile.channel] = declared
            try:
                self._reconcile(declared)
            except QualityError:
                del holder.declared[profile.channel]
                raise
        finally:
            self._remove_if_empty(holder)

    def profile(self, session: MqttSession, channel: str) -> ClientProfile:
        holder = self.clients.get(session.name)
        declared = None if holder is None else holder.declared.get(channel)
        if declared is None:
            raise QualityError("channel", f"you have no profile for {channel!r}")
        return declared

    def withdraw_profile(self, session: MqttSession, channel: str) -> None:
        declared = self.profile(session, channel)
        del declared.holder.declared[channel]
        declared.is_revoked = True
        self._reconcile(declared)
        self._remove_if_empty(declared.holder)

    # Time

    def next_due_us(self) -> int:
        return 0 if self._due else self.negotiation.next_due_us()

    def advance(self) -> None:
        now_us = self._clock_us()
        for matter in list(self._due)[:_ITEMS_PER_STEP]:
            del self._due[matter]
            try:
                self._reconcile(matter)
            except QualityError:
                continue  # accepted earlier, but there is no room now
        if not self._due:
            self._ended.clear()
        if self.negotiation.next_due_us() <= now_us:
            self.handle_notices(self.negotiation.advance(now_us=now_us))
        if self.tier_negotiation is not None:
            self.handle_notices([])  # notices caused by neighbours

    def handle_notices(self, notices: list[Notice]) -> None:
        """Execute the notices of a negotiation: notify clients, apply mechanisms."""
        self.may_be_due = True
        self.version += 1
        if self.tier_negotiation is not None:
            self.tier_negotiation.dispatch(notices)
            notices = self.tier_negotiation.take_notices()
        for notice in notices:
            if isinstance(notice, StateChanged):
                self._notify_state(notice)
            elif isinstance(notice, Advice):
                self.counts.advice += 1
                self._log_action(notice, MechanismStep.ADVISE.value, is_release=notice.is_release)
                notify_client(self._broker, notice.publisher, ADVICE, advice_form(notice))
            elif isinstance(notice, UsageChanged):
                self.counts.usages += 1
                notify_client(self._broker, notice.publisher, ADVICE, usage_form(notice))
            elif isinstance(notice, ApplyMechanism):
                self.counts.mechanisms += 1
                self._log_action(notice, notice.step.value)
                act = self._redirect_to_source(notice)
                if not self.monitor.mechanisms.apply(act) and self.on_mechanism is not None:
                    self.on_mechanism(act)
            elif isinstance(notice, WithdrawMechanism):
                self.monitor.mechanisms.withdraw(notice.reaction)
                if self.on_withdraw is not None:
                    self.on_withdraw(notice.reaction)

    def observe_actions(self, now_ms: int) -> None:
        """Observe what the newest actions led to."""
        if self.actions.observe(self._look_at, now_ms):
            self.version += 1

    def resend_states(self, session: MqttSession, pattern: str) -> None:
        """Send the states of its expectations to a client that has just subscribed to them."""
        holder = self.clients.get(session.name)
        if holder is None or not filter_selects(pattern, EXPECTATIONS):
            return
        for expected in list(holder.expected.values())[:_MAX_STATES_SENT]:
            if expected.lifecycle is Lifecycle.ACTIVE:
                notify_session(self._broker, session, EXPECTATIONS, self.state_of(expected))

    def state_of(self, expected: ClientExpectation) -> Json:
        """The state of an expectation as sent to its client."""
        form: Json = {
            "expectation": expected.id,
            "channel": expected.subscription,
            "state": expected.lifecycle.value,
        }
        if expected.lifecycle is Lifecycle.ACTIVE:
            standing = self.negotiation.report(expected.expectation.id)
            state = MatchState.UNSATISFIED if standing.state is None else standing.state
            changed = StateChanged("", "", state, standing.decision, standing.reasons)
            form = state_form(changed, expected.id, expected.subscription)
        return form

    def check_invariants(self) -> None:
        self.negotiation.check_invariants()
        held = {each for holder in self.clients.values() for each in holder.expected.values()}
        due = {each for each in self._due if isinstance(each, ClientExpectation)}
        assert set(self._expectations.values()) == held | {each for each in due if each.is_revoked}
        for holder in self.clients.values():
            assert not holder.is_empty
            assert holder.client in self._broker.sessions

    # Internal

    def _log_action(
        self, notice: Advice | ApplyMechanism, act: str, *, is_release: bool = False
    ) -> None:
        offer = self.negotiation.offer(notice.publisher, notice.channel, notice.property)
        self.actions.add(
            at_ms=self._broker.context.now_ms,
            act=act,
            publisher=notice.publisher,
            channel=notice.channel,
            property_=notice.property,
            target=notice.target,
            before=None if offer is None else offer.capability.current,
            is_release=is_release,
        )

    def _look_at(self, action: QualityAction) -> tuple[Value, bool] | None:
        offer = self.negotiation.offer(action.publisher, action.channel, action.property)
        if offer is None:
            return None
        target = offer.property.score(action.target)
        is_reached = offer.current <= target if action.is_release else offer.current >= target
        # A filter acts on what subscribers get; the publisher goes on as before.
        is_filter = action.act == MechanismStep.FILTER_RATE.value
        return offer.capability.current, is_filter or is_reached

    def _client(self, session: MqttSession) -> ClientQuality:
        holder = self.clients.get(session.name)
        if holder is None:
            ended = self._ended.pop(session.name, None)
            for declared in () if ended is None else ended.declared.values():
                self._reconcile(declared)  # a publisher has one profile per channel
            self._last_number += 1
            holder = self.clients[session.name] = ClientQuality(session.name, self._last_number)
        return holder

    def _remove_if_empty(self, holder: ClientQuality) -> None:
        if holder.is_empty and self.clients.get(holder.client) is holder:
            del self.clients[holder.client]

    def find(self, session: MqttSession, own_id: str) -> ClientExpectation:
        holder = self.clients.get(session.name)
        found = None if holder is None else holder.expected.get(own_id)
        if found is None:
            raise QualityError(f"expectation {own_id!r}", "you have none with this id")
        return found

    def _revoke(self, holder: ClientQuality, expected: ClientExpectation) -> None:
        holder.remove(expected)
        expected.is_revoked = True
        self._reconcile(expected)

    def _schedule_all(self, holder: ClientQuality) -> None:
        self.may_be_due = True
        self._due |= dict.fromkeys([*holder.declared.values(), *holder.expected.values()], True)

    def _reconcile(self, item: NegotiatedItem) -> None:
        self._due.pop(item, None)
        was_known = isinstance(item, ClientProfile) and item.is_known
        self.handle_notices(item.reconcile(self.negotiation, self._clock_us()))
        if isinstance(item, ClientProfile) and item.is_known != was_known:
            if item.is_known:
                self.monitor.watch(item)
            else:
                self.monitor.unwatch(item)
        elif isinstance(item, ClientExpectation) and item.lifecycle is Lifecycle.REVOKED:
            self._expectations.pop(item.expectation.id, None)

    def _redirect_to_source(self, mechanism: ApplyMechanism) -> ApplyMechanism:
        """Redirect a mechanism from the client that declared a profile to the publishing one."""
        holder = self.clients.get(mechanism.publisher)
        declared = None if holder is None else holder.declared.get(mechanism.channel)
        if declared is None or declared.source == mechanism.publisher:
            return mechanism
        return msgspec.structs.replace(mechanism, publisher=declared.source)

    def _update_profile(self, declared: ClientProfile, profile: Profile, source: str) -> None:
        if not declared.is_known:
            declared.profile, declared.source = profile, source
            return
        notices = self.negotiation.update_profile(profile, now_us=self._clock_us())
        self.monitor.change(declared, profile, source)
        self.handle_notices(notices)

    def _notify_state(self, changed: StateChanged) -> None:
        expected = self._expectations.get(changed.expectation)
        if expected is None or expected.is_revoked:
            return
        expected.state = changed.state
        self.counts.states += 1
        form = state_form(changed, expected.id, expected.subscription)
        notify_client(self._broker, expected.holder.client, EXPECTATIONS, form)


def _expectation(form: ExpectationForm, key: str, subscription: str, pattern: str) -> Expectation:
    return Expectation(
        id=key,
        subscription=subscription,
        channel=pattern,
        requirements=form.requirements,
        utility=form.utility,
        publishers=form.publishers,
    )


def _with_own_id(error: QualityError, key: str, own_id: str) -> str:
    """An error message with the client's own ID in place of the internal key."""
    return str(error).replace(
        f"expectation {key!r}", f"expectation {own_id!r}" if own_id else EXPECT
    )
