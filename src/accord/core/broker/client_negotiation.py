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
from accord.core.quality.client_quality import (
    ClientExpectation,
    ClientProfile,
    ClientQuality,
    NegotiatedItem,
)
from accord.core.quality.expectations import MAX_ALTERNATIVES, Expectation, Lifecycle, wanted_of
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
    Notice,
    StateChanged,
    UsageChanged,
    WithdrawMechanism,
)
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.overlay_negotiation import TierNegotiation
from accord.core.quality.profiles import Profile, check_profile
from accord.core.quality.properties import Property, QualityError
from accord.core.router.rights import ADVICE, EXPECTATIONS

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker

EXPECT: Final = "expect"
MAX_OF_ONE: Final = 10_000  # expectations of a client, and also profiles
_TOLD_AGAIN: Final = 1_000  # states sent to a new subscriber
_AT_ONCE: Final = 50  # items settled per step when clients connect or leave


class SubscribeExpectations:
    """The expectations of a SUBSCRIBE, or why they could not be parsed."""

    def __init__(self, wishes: tuple[ExpectationForm, ...], problem: str = "") -> None:
        self.wishes = wishes
        self.problem = problem


class NegotiationCounts(msgspec.Struct):
    """Counts since the start; `states` are those sent to clients."""

    advice: int = 0
    usages: int = 0
    states: int = 0
    acts: int = 0


class ClientNegotiation:
    """Connects sessions to the negotiation; `clock_us` returns the overlay's time.

    Mechanisms that concern a publisher but not its events (another path) are passed to `on_act`.
    """

    def __init__(
        self, broker: Broker, negotiation: Negotiation, clock_us: Callable[[], int]
    ) -> None:
        self.negotiation = negotiation
        self.exchange: TierNegotiation | None = None  # set once the node is part of an overlay
        self.counts = NegotiationCounts()
        self.holders: dict[str, ClientQuality] = {}
        self.watching = QualityMonitor(broker, negotiation, clock_us, self.holders, self.take)
        self.on_act: Callable[[ApplyMechanism], None] | None = None
        self.on_withdraw: Callable[[int], None] | None = None
        self.is_stirred = False  # whether something may have become due
        self._broker = broker
        self._clock_us = clock_us
        self._last_number = 0
        self._held: dict[str, ClientExpectation] = {}  # by their IDs in the negotiation
        self._due: dict[NegotiatedItem, bool] = {}  # to be settled
        self._ended: dict[str, ClientQuality] = {}  # with items that may be due

    # Subscriptions

    def expecting(self, properties: Properties) -> SubscribeExpectations | None:
        """The user properties `expect` of a SUBSCRIBE, if there are any."""
        texts = [text for name, text in properties.user if name == EXPECT]
        if not texts:
            return None
        try:
            if len(texts) > MAX_ALTERNATIVES:
                problem = f"at most {MAX_ALTERNATIVES} accepted, got {len(texts)}"
                raise QualityError(EXPECT, problem)
            registry = self.negotiation.registry
            wishes = tuple(parse_expectation(read_json(text, EXPECT), registry) for text in texts)
        except QualityError as error:
            return SubscribeExpectations((), str(error))
        return SubscribeExpectations(wishes)

    def problem(
        self, session: MqttSession, name: str, pattern: str, expecting: SubscribeExpectations
    ) -> str:
        """Why a subscription can't have these expectations instead of its present ones."""
        if expecting.problem:
            return expecting.problem
        if pattern.startswith("$"):
            return ""
        holder = self.holders.get(session.name)
        expected = {} if holder is None else holder.expected
        mine = () if holder is None else holder.by_subscription.get(name, ())
        if len(expected) - len(mine) + len(expecting.wishes) > MAX_OF_ONE:
            return f"expect: you have {MAX_OF_ONE} expectations already"
        ids: set[str] = set()
        for wish in expecting.wishes:
            if wish.id and (wish.id in ids or (wish.id in expected and wish.id not in mine)):
                return f"expect.id: {wish.id!r} is another expectation's"
            ids.add(wish.id)
            try:
                wanted_of(_expectation(wish, "x", "x", pattern), self.negotiation.registry)
            except QualityError as error:
                return _said(error, "x", wish.id)
        return ""

    def subscribed(
        self, session: MqttSession, name: str, pattern: str, expecting: SubscribeExpectations
    ) -> str:
        """Register the expectations of a new subscription; returns why that failed, or "".

        System channels, which may be in the same packet, have no expectations.
        """
        if pattern.startswith("$"):
            return ""
        for wish in expecting.wishes:
            try:
                self.register(session, name, pattern, wish)
            except QualityError as error:
                self.unsubscribed(session, name)
                return str(error)
        return ""

    def restored(self, session: MqttSession, name: str, pattern: str, texts: Iterable[str]) -> None:
        """Register the expectations of a recovered session; unreadable ones are skipped."""
        for text in texts:
            try:
                form = read_json(text, EXPECT)
                is_suspended = form.pop("suspended", False) is True
                wish = parse_expectation(form, self.negotiation.registry)
                holder = self._holder(session)
                holder.is_away = session.line is None
                expected = self.register(session, name, pattern, wish)
            except QualityError:
                continue
            expected.is_suspended = is_suspended

    def texts(self, session: MqttSession, name: str) -> tuple[str, ...]:
        """The expectations of a subscription, in the form `restored` takes."""
        holder = self.holders.get(session.name)
        if holder is None:
            return ()
        texts = []
        for each in holder.by_subscription.get(name, {}).values():
            form = render_expectation(msgspec.structs.replace(each.wish, id=each.id))
            if each.is_suspended:
                form["suspended"] = True
            texts.append(msgspec.json.encode(form).decode())
        return tuple(texts)

    def unsubscribed(self, session: MqttSession, name: str) -> None:
        holder = self.holders.get(session.name)
        if holder is None:
            return
        for expected in list(holder.by_subscription.get(name, {}).values()):
            self._revoke(holder, expected)
        self._forget(holder)

    # Sessions

    def left(self, session: MqttSession) -> None:
        """The client is offline, temporarily or for good."""
        holder = self.holders.get(session.name)
        if holder is not None and not holder.is_away:
            holder.is_away = True
            self._all_due(holder)

    def returned(self, session: MqttSession) -> None:
        holder = self.holders.get(session.name)
        if holder is not None and holder.is_away:
            holder.is_away = False
            self._all_due(holder)

    def ended(self, session: MqttSession) -> None:
        holder = self.holders.pop(session.name, None)
        if holder is None:
            return
        self._all_due(holder)
        for expected in holder.expected.values():
            expected.is_revoked = True
        for declared in holder.declared.values():
            declared.is_revoked = True
        self._ended[session.name] = holder

    # Expectations

    def register(
        self, session: MqttSession, name: str, pattern: str, wish: ExpectationForm
    ) -> ClientExpectation:
        """Register an expectation; raises QualityError if it is refused."""
        holder = self._holder(session)
        try:
            if len(holder.expected) >= MAX_OF_ONE:
                raise QualityError("expectations", f"you have {MAX_OF_ONE} already")
            own_id = wish.id or holder.new_id(name, MAX_OWN_ID)
            if own_id in holder.expected:
                problem = "registered already; update it, or choose another id"
                raise QualityError(f"expectation {own_id!r}", problem)
            self._last_number += 1
            key = f"{own_id}\n{self._last_number}"
            expectation = _expectation(wish, key, holder.key(name), pattern)
            expected = ClientExpectation(holder, own_id, name, wish, expectation)
            # Entered before it is settled: the resulting notices refer to it.
            self._held[key] = expected
            holder.add(expected)
            try:
                self._settle(expected)
            except QualityError as error:
                holder.remove(expected)
                del self._held[key]
                raise QualityError(EXPECT, _said(error, key, own_id)) from None
        finally:
            self._forget(holder)
        return expected

    def update(self, session: MqttSession, own_id: str, wish: ExpectationForm) -> None:
        expected = self.find(session, own_id)
        old = expected.expectation
        new = _expectation(wish, old.id, old.subscription, old.channel)
        try:
            wanted_of(new, self.negotiation.registry)
            notices = self.negotiation.update(new, now_us=self._clock_us())
        except QualityError as error:
            raise QualityError(EXPECT, _said(error, old.id, own_id)) from None
        expected.wish, expected.expectation = wish, new
        self.take(notices)

    def suspend(self, session: MqttSession, own_id: str) -> None:
        expected = self.find(session, own_id)
        if expected.is_suspended:
            raise QualityError(f"expectation {own_id!r}", "can't suspend what is suspended")
        expected.is_suspended = True
        self._settle(expected)

    def resume(self, session: MqttSession, own_id: str) -> None:
        expected = self.find(session, own_id)
        if not expected.is_suspended:
            raise QualityError(f"expectation {own_id!r}", "can't resume what is active")
        expected.is_suspended = False
        self._settle(expected)

    def revoke(self, session: MqttSession, own_id: str) -> None:
        expected = self.find(session, own_id)
        self._revoke(expected.holder, expected)
        self._forget(expected.holder)

    def define(self, *properties: Property) -> None:
        """Define all properties or none; raises QualityError if one has another meaning in use."""
        self.take(self.negotiation.define(*properties, now_us=self._clock_us()))

    # Profiles

    def declare(self, session: MqttSession, profile: Profile, source: str) -> None:
        """Set the client's profile for a channel, replacing any earlier one."""
        holder = self._holder(session)
        try:
            known = holder.declared.get(profile.channel)
            if known is not None:
                check_profile(profile, self.negotiation.registry)
                self._update(known, profile, source)
                return
            if len(holder.declared) >= MAX_OF_ONE:
                raise QualityError("profiles", f"you have {MAX_OF_ONE} already")
            check_profile(profile, self.negotiation.registry)
            declared = ClientProfile(holder, profile, source)
            holder.declared[profile.channel] = declared
            try:
                self._settle(declared)
            except QualityError:
                del holder.declared[profile.channel]
                raise
        finally:
            self._forget(holder)

    def profile(self, session: MqttSession, channel: str) -> ClientProfile:
        holder = self.holders.get(session.name)
        declared = None if holder is None else holder.declared.get(channel)
        if declared is None:
            raise QualityError("channel", f"you have no profile for {channel!r}")
        return declared

    def withdraw_profile(self, session: MqttSession, channel: str) -> None:
        declared = self.profile(session, channel)
        del declared.holder.declared[channel]
        declared.is_revoked = True
        self._settle(declared)
        self._forget(declared.holder)

    # Time

    def next_due_us(self) -> int:
        return 0 if self._due else self.negotiation.next_due_us()

    def advance(self) -> None:
        now_us = self._clock_us()
        for matter in list(self._due)[:_AT_ONCE]:
            del self._due[matter]
            try:
                self._settle(matter)
            except QualityError:
                continue  # accepted earlier, but there is no room now
        if not self._due:
            self._ended.clear()
        if self.negotiation.next_due_us() <= now_us:
            self.take(self.negotiation.advance(now_us=now_us))
        if self.exchange is not None:
            self.take([])  # notices caused by neighbours

    def take(self, notices: list[Notice]) -> None:
        """Execute the notices of a negotiation: notify clients, apply mechanisms."""
        self.is_stirred = True
        if self.exchange is not None:
            self.exchange.take(notices)
            notices = self.exchange.take_notices()
        for notice in notices:
            if isinstance(notice, StateChanged):
                self._tell_state(notice)
            elif isinstance(notice, Advice):
                self.counts.advice += 1
                notify_client(self._broker, notice.publisher, ADVICE, advice_form(notice))
            elif isinstance(notice, UsageChanged):
                self.counts.usages += 1
                notify_client(self._broker, notice.publisher, ADVICE, usage_form(notice))
            elif isinstance(notice, ApplyMechanism):
                self.counts.acts += 1
                act = self._of_source(notice)
                if not self.watching.acts.apply(act) and self.on_act is not None:
                    self.on_act(act)
            elif isinstance(notice, WithdrawMechanism):
                self.watching.acts.withdraw(notice.reaction)
                if self.on_withdraw is not None:
                    self.on_withdraw(notice.reaction)

    def tell_again(self, session: MqttSession, pattern: str) -> None:
        """Send the states of its expectations to a client that has just subscribed to them."""
        holder = self.holders.get(session.name)
        if holder is None or not filter_selects(pattern, EXPECTATIONS):
            return
        for expected in list(holder.expected.values())[:_TOLD_AGAIN]:
            if expected.life is Lifecycle.ACTIVE:
                notify_session(self._broker, session, EXPECTATIONS, self.state_of(expected))

    def state_of(self, expected: ClientExpectation) -> Json:
        """The state of an expectation as sent to its client."""
        form: Json = {
            "expectation": expected.id,
            "channel": expected.subscription,
            "state": expected.life.value,
        }
        if expected.life is Lifecycle.ACTIVE:
            standing = self.negotiation.standing(expected.expectation.id)
            state = MatchState.UNSATISFIED if standing.state is None else standing.state
            changed = StateChanged("", "", state, standing.decision, standing.reasons)
            form = state_form(changed, expected.id, expected.subscription)
        return form

    def check_invariants(self) -> None:
        self.negotiation.check_invariants()
        held = {each for holder in self.holders.values() for each in holder.expected.values()}
        due = {each for each in self._due if isinstance(each, ClientExpectation)}
        assert set(self._held.values()) == held | {each for each in due if each.is_revoked}
        for holder in self.holders.values():
            assert not holder.is_empty
            assert holder.client in self._broker.sessions

    # Internal

    def _holder(self, session: MqttSession) -> ClientQuality:
        holder = self.holders.get(session.name)
        if holder is None:
            ended = self._ended.pop(session.name, None)
            for declared in () if ended is None else ended.declared.values():
                self._settle(declared)  # a publisher has one profile per channel
            self._last_number += 1
            holder = self.holders[session.name] = ClientQuality(session.name, self._last_number)
        return holder

    def _forget(self, holder: ClientQuality) -> None:
        if holder.is_empty and self.holders.get(holder.client) is holder:
            del self.holders[holder.client]

    def find(self, session: MqttSession, own_id: str) -> ClientExpectation:
        holder = self.holders.get(session.name)
        found = None if holder is None else holder.expected.get(own_id)
        if found is None:
            raise QualityError(f"expectation {own_id!r}", "you have none with this id")
        return found

    def _revoke(self, holder: ClientQuality, expected: ClientExpectation) -> None:
        holder.remove(expected)
        expected.is_revoked = True
        self._settle(expected)

    def _all_due(self, holder: ClientQuality) -> None:
        self.is_stirred = True
        self._due |= dict.fromkeys([*holder.declared.values(), *holder.expected.values()], True)

    def _settle(self, matter: NegotiatedItem) -> None:
        self._due.pop(matter, None)
        was_known = isinstance(matter, ClientProfile) and matter.is_known
        self.take(matter.settle(self.negotiation, self._clock_us()))
        if isinstance(matter, ClientProfile) and matter.is_known != was_known:
            if matter.is_known:
                self.watching.watch(matter)
            else:
                self.watching.unwatch(matter)
        elif isinstance(matter, ClientExpectation) and matter.life is Lifecycle.REVOKED:
            self._held.pop(matter.expectation.id, None)

    def _of_source(self, act: ApplyMechanism) -> ApplyMechanism:
        """Redirect a mechanism from the client that declared a profile to the publishing one."""
        holder = self.holders.get(act.publisher)
        declared = None if holder is None else holder.declared.get(act.channel)
        if declared is None or declared.source == act.publisher:
            return act
        return msgspec.structs.replace(act, publisher=declared.source)

    def _update(self, declared: ClientProfile, profile: Profile, source: str) -> None:
        if not declared.is_known:
            declared.profile, declared.source = profile, source
            return
        notices = self.negotiation.update_profile(profile, now_us=self._clock_us())
        self.watching.change(declared, profile, source)
        self.take(notices)

    def _tell_state(self, changed: StateChanged) -> None:
        expected = self._held.get(changed.expectation)
        if expected is None or expected.is_revoked:
            return
        expected.state = changed.state
        self.counts.states += 1
        form = state_form(changed, expected.id, expected.subscription)
        notify_client(self._broker, expected.holder.client, EXPECTATIONS, form)


def _expectation(wish: ExpectationForm, key: str, subscription: str, pattern: str) -> Expectation:
    return Expectation(
        id=key,
        subscription=subscription,
        channel=pattern,
        requirements=wish.requirements,
        utility=wish.utility,
        publishers=wish.publishers,
    )


def _said(error: QualityError, key: str, own_id: str) -> str:
    """An error message with the client's own ID in place of the internal key."""
    return str(error).replace(
        f"expectation {key!r}", f"expectation {own_id!r}" if own_id else EXPECT
    )
