"""On which channels a client may publish and subscribe.

A subscription is allowed when one of the allowed filters selects every channel that its own filter
selects, and no denied filter does: then all that is left to see to when routes are worked out is
that they leave out denied channels. As in MQTT, wildcards in the first level do not reach channels
that start with `$`. Those belong to the system: `$SYS/…` can be read but never written by clients,
all others need a filter that names their first level, or the right to all of them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.model.channels import RESPONSES, selects_any

STATISTICS: Final = "$SYS"
POLICIES: Final = "$accord/policies"
QUERIES: Final = "$accord/query"  # anybody may ask, for what they may subscribe to
# Quality: anybody may say what they expect and offer, where they may subscribe and publish.
EXPECTATIONS: Final = "$accord/expectations"
CAPABILITIES: Final = "$accord/capabilities"
PROPERTIES: Final = "$accord/properties"
ADVICE: Final = "$accord/advice"
ADVERTISEMENTS: Final = "$accord/advertisements"  # anybody may, for what they may publish to
# Answers to one's own events. Who has an event's receipt may answer: it is what comes behind.
FEEDBACK: Final = "$accord/feedback"
FEEDBACK_PREFIX: Final = FEEDBACK + "/"
HISTORY: Final = "$accord/past"  # what of the past a subscription could not have
CHANNELS: Final = "$accord/channels"  # anybody may ask: the answer says what they may not
REQUESTS: Final = (
    *(POLICIES, CHANNELS, QUERIES, EXPECTATIONS, CAPABILITIES, PROPERTIES, ADVERTISEMENTS),
)
_OPEN: Final = (CHANNELS, QUERIES, EXPECTATIONS, CAPABILITIES, PROPERTIES, ADVERTISEMENTS)
# Of these each client gets only what concerns itself.
_PRIVATE: Final = (EXPECTATIONS, ADVICE, FEEDBACK, HISTORY)
_SHARED: Final = "$share/"
_PLACEHOLDER: Final = re.compile("%[uc]")


class Allowed(Struct, frozen=True):
    """What a client may do; `%u` and `%c` in a filter stand for its user name and client id."""

    publish: Annotated[
        tuple[str, ...],
        Meta(description="Filters of the channels it may publish to.", extra={"kind": "filters"}),
    ] = ()
    subscribe: Annotated[
        tuple[str, ...],
        Meta(description="Filters of the channels it may subscribe to.", extra={"kind": "filters"}),
    ] = ()
    statistics: Annotated[
        bool,
        Meta(
            description="Whether it may read the node's statistics under $SYS/#, and over HTTP its "
            "status, clients, ledger, series and other nodes."
        ),
    ] = True
    system: Annotated[
        bool, Meta(description="Whether it may use all other channels that begin with $.")
    ] = False
    policies: Annotated[
        bool, Meta(description="Whether it may see and change policies, and define channels.")
    ] = False


class Denied(Struct, frozen=True):
    """What a client may not do, whatever else allows it; filters as above."""

    publish: Annotated[
        tuple[str, ...],
        Meta(
            description="Filters of the channels it may not publish to.", extra={"kind": "filters"}
        ),
    ] = ()
    subscribe: Annotated[
        tuple[str, ...],
        Meta(
            description="Filters of the channels whose events it never gets, also where it "
            "subscribed to a wider filter.",
            extra={"kind": "filters"},
        ),
    ] = ()
    statistics: Annotated[bool, Meta(description="Whether it may not read statistics.")] = False
    system: Annotated[
        bool, Meta(description="Whether it may not use other channels that begin with $.")
    ] = False
    policies: Annotated[
        bool, Meta(description="Whether it may not see or change policies, nor define channels.")
    ] = False


NOTHING_DENIED: Final = Denied()


class Rights(Allowed, frozen=True):
    """What a client may do, less what it may not."""

    denied: Denied = NOTHING_DENIED

    @classmethod
    def less(cls, may: Allowed, may_not: Denied) -> Rights:
        return cls(
            publish=may.publish,
            subscribe=may.subscribe,
            statistics=may.statistics and not may_not.statistics,
            system=may.system and not may_not.system,
            policies=may.policies and not may_not.policies,
            denied=may_not,
        )

    def bound(self, *, user: str, client: str) -> Rights:
        """These rights with the placeholders filled in, and that to replies to the client."""
        own = f"{RESPONSES}%c/#"
        subscribe = self.subscribe if "#" in self.subscribe else (*self.subscribe, own)
        denied = self.denied
        if denied.publish or denied.subscribe:
            denied = replace(
                denied,
                publish=tuple(_widened(each, user, client) for each in denied.publish),
                subscribe=tuple(_widened(each, user, client) for each in denied.subscribe),
            )
        publish = _fill(self.publish, user, client)
        subscribe = _fill(subscribe, user, client)
        if (publish, subscribe, denied) == (self.publish, self.subscribe, self.denied):
            return self  # as most often: clients share it
        return replace(self, publish=publish, subscribe=subscribe, denied=denied)

    def may_publish(self, channel: str) -> bool:
        if selects_any(self.denied.publish, channel):
            return False
        if not channel.startswith("$") and "#" in self.publish:
            return True
        if _is_statistics(channel):
            return False
        if channel in _OPEN or channel.startswith(FEEDBACK_PREFIX):
            return True
        if channel.startswith("$"):
            if self.system or (self.policies and channel == POLICIES):
                return True
            if self.denied.system:
                return False
        return selects_any(self.publish, channel)

    def may_advertise(self, pattern: str) -> bool:
        """Whether it may publish to all channels that `pattern` selects, but for denied ones."""
        if any(filter_covers(denied, pattern) for denied in self.denied.publish):
            return False
        return any(filter_covers(allowed, pattern) for allowed in self.publish)

    def may_subscribe(self, pattern: str) -> bool:
        """Also for a shared subscription, `$share/GROUP/FILTER`, where its filter counts.

        A filter that selects other channels than denied ones is allowed: events of those are not
        delivered.
        """
        if pattern.startswith(_SHARED):
            pattern = pattern[len(_SHARED) :].partition("/")[2]
        if any(filter_covers(denied, pattern) for denied in self.denied.subscribe):
            return False
        if _is_statistics(pattern):
            return self.statistics
        if pattern in _PRIVATE or (self.system and pattern.startswith("$")):
            return True
        if pattern.startswith("$") and self.denied.system:
            return False
        return any(filter_covers(allowed, pattern) for allowed in self.subscribe)


EVERYTHING: Final = Rights(publish=("#",), subscribe=("#",), system=True, policies=True)
NO_RIGHTS: Final = Rights(statistics=False)


def filter_covers(pattern: str, other: str) -> bool:
    """Whether `pattern` selects every channel that `other` selects; both are valid filters."""
    if other == "#":
        other = "+/#"  # the same channels, as each has a first level
    levels, others = pattern.split("/"), other.split("/")
    if others[0].startswith("$") and levels[0] != others[0]:
        return False
    for position, level in enumerate(levels):
        if level == "#":
            return True
        if position == len(others) or others[position] == "#":
            return False
        if level not in ("+", others[position]):
            return False
    return len(levels) == len(others)


def _is_statistics(channel: str) -> bool:
    return channel.startswith(STATISTICS) and channel[len(STATISTICS) :][:1] in ("", "/")


def _fill(patterns: tuple[str, ...], user: str, client: str) -> tuple[str, ...]:
    filled = (_filled(pattern, user, client) for pattern in patterns)
    return tuple(pattern for pattern in filled if pattern is not None)


def _filled(pattern: str, user: str, client: str) -> str | None:
    """None where a name would fill more than its level: it could reach the channels of others."""
    names = {"%u": user, "%c": client}
    for placeholder, name in names.items():
        if placeholder in pattern and (not name or any(c in name for c in "+#/")):
            return None
    # In one pass, because a user may be called %c.
    filled = _PLACEHOLDER.sub(lambda found: names[found[0]], pattern)
    return filled if filled.startswith("$") == pattern.startswith("$") else None


def _widened(pattern: str, user: str, client: str) -> str:
    """A level that a name can't fill stands for all: what is denied must not be less than meant."""
    names = {"%u": user, "%c": client}
    levels = pattern.split("/")
    for place, level in enumerate(levels):
        found = [names[each] for each in _PLACEHOLDER.findall(level)]
        if any(not name or "+" in name or "#" in name for name in found):
            levels[place] = "+"
        elif found:
            levels[place] = _PLACEHOLDER.sub(lambda found: names[found[0]], level)
    return "/".join(levels)
