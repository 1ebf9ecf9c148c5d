"""What one client has to do with quality: its expectations and its profiles.

Each of them has a life as it is wanted, and one as the negotiation knows it; `settle` brings the
second in line with the first. So when a client with thousands of them comes or goes that need not
happen all at once.

While a client is away its expectations are suspended and its profiles withdrawn: nobody would hear
of the former, nor follow advice to the latter. Both come back with it, as long as its session does.
"""

from __future__ import annotations

from typing import Protocol

from accord.core.quality.expectations import Expectation, Lifecycle
from accord.core.quality.json_forms import ExpectationForm
from accord.core.quality.matching import MatchState
from accord.core.quality.negotiation import Negotiation
from accord.core.quality.notices import Notice
from accord.core.quality.profiles import Profile


class NegotiatedItem(Protocol):
    """Something that is negotiated for a client."""

    def settle(self, negotiation: Negotiation, now_us: int) -> list[Notice]: ...


class ClientExpectation:
    """One expectation; `subscription` is the name of what it belongs to."""

    def __init__(
        self,
        holder: ClientQuality,
        own_id: str,
        subscription: str,
        wish: ExpectationForm,
        expectation: Expectation,
    ) -> None:
        self.holder = holder
        self.id = own_id
        self.subscription = subscription
        self.wish = wish
        self.expectation = expectation
        self.is_suspended = False  # by its client
        self.is_revoked = False
        self.life = Lifecycle.REVOKED  # as the negotiation knows it: not at all
        self.state: MatchState | None = None  # as told last

    def settle(self, negotiation: Negotiation, now_us: int) -> list[Notice]:
        wanted = Lifecycle.ACTIVE
        if self.is_revoked:
            wanted = Lifecycle.REVOKED
        elif self.is_suspended or self.holder.is_away:
            wanted = Lifecycle.SUSPENDED
        before, self.life = self.life, wanted
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
                self.life = Lifecycle.REVOKED
                raise
            if wanted is Lifecycle.SUSPENDED:
                notices += negotiation.suspend(key, now_us=now_us)
        elif wanted is Lifecycle.ACTIVE:
            notices = negotiation.resume(key, now_us=now_us)
        else:
            notices = negotiation.suspend(key, now_us=now_us)
        return notices


class ClientProfile:
    """One profile; `source` is the client whose events count for what is measured of it."""

    def __init__(self, holder: ClientQuality, profile: Profile, source: str) -> None:
        self.holder = holder
        self.profile = profile
        self.source = source
        self.is_revoked = False
        self.is_known = False  # to the negotiation

    def settle(self, negotiation: Negotiation, now_us: int) -> list[Notice]:
        is_wanted = not (self.is_revoked or self.holder.is_away)
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
    """A client's session, as far as quality is concerned."""

    def __init__(self, client: str, number: int) -> None:
        self.client = client
        self.number = number
        self.is_away = False
        self.expected: dict[str, ClientExpectation] = {}  # by the ids that the client gave
        self.by_subscription: dict[str, dict[str, ClientExpectation]] = {}
        self.declared: dict[str, ClientProfile] = {}  # by channel
        self._keys: dict[str, str] = {}  # of subscriptions, as the negotiation has them
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
        """As the client, its subscription and a number say; short where that would be long."""
        start = f"{self.client}/{subscription}#"
        if len(start) + 8 > most or not start.isprintable():
            start = "#"
        number = len(self.by_subscription.get(subscription, {})) + 1
        while f"{start}{number}" in self.expected:
            number += 1
        return f"{start}{number}"
