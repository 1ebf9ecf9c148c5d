"""Expectations and profiles of one client.

Each has a desired lifecycle state and the state known to the negotiation; `reconcile` brings the
second in line with the first. A client with thousands of them that connects or disconnects can
therefore be processed in steps.

While a client is offline, its expectations are suspended and its profiles withdrawn: it could
neither receive notices for the former nor follow advice on the latter. Both are restored when it
reconnects, as long as its session exists.
"""

from __future__ import annotations

from typing import Protocol

from accord.core.quality.expectations import Expectation, Lifecycle
from accord.core.quality.json_forms import ExpectationForm
from accord.core.quality.matching import MatchState
from accord.core.quality.messages import Notice
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.profiles import Profile


class NegotiatedItem(Protocol):
    """Something negotiated on behalf of a client."""

    def reconcile(self, negotiation: Negotiation, now_us: int) -> list[Notice]: ...


class ClientExpectation:
    """One expectation of a client; `subscription` names the subscription it belongs to."""

    def __init__(
        self,
        holder: ClientQuality,
        own_id: str,
        subscription: str,
        form: ExpectationForm,
        expectation: Expectation,
    ) -> None:
        self.holder = holder
        self.id = own_id
        self.subscription = subscription
        self.form = form
        self.expectation = expectation
        self.is_suspended = False  # by its client
        self.is_revoked = False
        self.lifecycle = Lifecycle.REVOKED  # as known to the negotiation: not registered
        self.state: MatchState | None = None  # as last reported to the client

    def reconcile(self, negotiation: Negotiation, now_us: int) -> list[Notice]:
        wanted = Lifecycle.ACTIVE
        if self.is_revoked:
            wanted = Lifecycle.REVOKED
        elif self.is_suspended or self.holder.is_offline:
            wanted = Lifecycle.SUSPENDED
        before, self.lifecycle = self.lifecycle, wanted
        key = self.expectation.id
        if wanted is before:
            return []
        if wanted is Lifecycle.REVOKED:
            return negotiation.revoke(key, now_us=now_us)
        notices: list[Notice] = []
        if before is Lifecycle.REVOKED:
            try:
                notices = negotiation.register(self.expectation, now_us=now_us)
            except Exception:
                self.lifecycle = Lifecycle.REVOKED
                raise
            if wanted is Lifecycle.SUSPENDED:
                notices += negotiation.suspend(key, now_us=now_us)
        elif wanted is Lifecycle.ACTIVE:
            notices = negotiation.resume(key, now_us=now_us)
        else:
            notices = negotiation.suspend(key, now_us=now_us)
        return notices


class ClientProfile:
    """One profile of a client; `source` is the client whose events are measured for it."""

    def __init__(self, holder: ClientQuality, profile: Profile, source: str) -> None:
        self.holder = holder
        self.profile = profile
        self.source = source
        self.is_revoked = False
        self.is_known = False  # registered with the negotiation

    def reconcile(self, negotiation: Negotiation, now_us: int) -> list[Notice]:
        is_wanted = not (self.is_revoked or self.holder.is_offline)
        if is_wanted is self.is_known:
            return []
        if is_wanted:
            notices = negotiation.register_profile(self.profile, now_us=now_us)
        else:
            publisher, channel = self.profile.publisher, self.profile.channel
            notices = negotiation.revoke_profile(publisher, channel, now_us=now_us)
        self.is_known = is_wanted
        return notices


class ClientQuality:
    """Quality state of one client session."""

    def __init__(self, client: str, number: int) -> None:
        self.client = client
        self.number = number
        self.is_offline = False
        self.expected: dict[str, ClientExpectation] = {}  # by the IDs that the client chose
        self.by_subscription: dict[str, dict[str, ClientExpectation]] = {}
        self.declared: dict[str, ClientProfile] = {}  # by channel
        self._keys: dict[str, str] = {}  # subscription keys used in the negotiation
        self._last_key = 0

    @property
    def is_empty(self) -> bool:
        return not (self.expected or self.declared)

    def key(self, subscription: str) -> str:
        if subscription not in self._keys:
            self._last_key += 1
            self._keys[subscription] = f"{self.number}/{self._last_key}"
        return self._keys[subscription]

    def add(self, expected: ClientExpectation) -> None:
        self.expected[expected.id] = expected
        self.by_subscription.setdefault(expected.subscription, {})[expected.id] = expected

    def remove(self, expected: ClientExpectation) -> None:
        del self.expected[expected.id]
        of_subscription = self.by_subscription[expected.subscription]
        del of_subscription[expected.id]
        if not of_subscription:
            del self.by_subscription[expected.subscription]
            self._keys.pop(expected.subscription, None)

    def new_id(self, subscription: str, most: int) -> str:
        """Builds an ID of client, subscription and number; just the number if that is too long."""
        start = f"{self.client}/{subscription}#"
        if len(start) + 8 > most or not start.isprintable():
            start = "#"
        number = len(self.by_subscription.get(subscription, {})) + 1
        while f"{start}{number}" in self.expected:
            number += 1
        return f"{start}{number}"
