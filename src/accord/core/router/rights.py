"""Rights of a client: the channels it may publish and subscribe to.

A subscription is allowed if one of the allowed filters selects every channel that its filter
selects, and no denied filter does; fan-outs then only have to leave out denied channels. As in
MQTT, wildcards in the first level do not match channels that start with `$`. Those belong to the
system: `$SYS/…` can be read but never written by clients; all others need a filter that names their
first level, or the right to all of them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.model.channels import RESPONSES, selects_any

STATISTICS: Final = "$SYS"
NODE_TOPICS: Final = "$accord/"  # of requests to the node, and of its replies and notices
POLICIES: Final = "$accord/policies"
QUERIES: Final = "$accord/query"  # any client, for channels it may subscribe to
# Quality: any client may state expectations and capabilities on channels it has rights to.
EXPECTATIONS: Final = "$accord/expectations"
CAPABILITIES: Final = "$accord/capabilities"
PROPERTIES: Final = "$accord/properties"
ADVICE: Final = "$accord/advice"
ADVERTISEMENTS: Final = "$accord/advertisements"  # any client, for channels it may publish to
# Feedback on a client's own events; the receipt that follows the prefix is the right to send it.
FEEDBACK: Final = "$accord/feedback"
FEEDBACK_PREFIX: Final = FEEDBACK + "/"
HISTORY: Final = "$accord/history"  # history that a subscription could not get
CHANNELS: Final = "$accord/channels"  # any client: the reply names what is not allowed
# Each client gets only its own messages on these.
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
    """What a client may do, less what it is denied."""

    denied: Denied = NOTHING_DENIED

    @classmethod
    def combine(cls, may: Allowed, may_not: Denied) -> Rights:
        return cls(
            publish=may.publish,
            subscribe=may.subscribe,
            statistics=may.statistics and not may_not.statistics,
            system=may.system and not may_not.system,
            policies=may.policies and not may_not.policies,
            denied=may_not,
        )

    def for_client(self, *, user: str, client: str) -> Rights:
        """Return the rights with placeholders filled in, and with the client's reply channel."""
        own = f"{RESPONSES}%c/#"
        subscribe = self.subscribe if "#" in self.subscribe else (*self.subscribe, own)
        denied = self.denied
        if denied.publish or denied.subscribe:
            denied = replace(
                denied,
                publish=tuple(_fill_denied(each, user, client) for each in denied.publish),
                subscribe=tuple(_fill_denied(each, user, client) for each in denied.subscribe),
            )
        publish = _fill(self.publish, user, client)
        subscribe = _fill(subscribe, user, client)
        if (publish, subscribe, denied) == (self.publish, self.subscribe, self.denied):
            return self  # the usual case: clients share it
        return replace(self, publish=publish, subscribe=subscribe, denied=denied)

    def may_publish(self, channel: str) -> bool:
        if selects_any(self.denied.publish, channel):
            return False
        if not channel.startswith("$") and "#" in self.publish:
            return True
        if _is_statistics(channel):
            return False
        if channel.startswith(NODE_TOPICS) and channel != POLICIES:
            return True  # the node's reply names what is not allowed
        if channel.startswith("$"):
            if self.system or (self.policies and channel == POLICIES):
                return True
            if self.denied.system:
                return False
        return selects_any(self.publish, channel)

    def may_advertise(self, pattern: str) -> bool:
        """Check whether it may publish to all channels of `pattern`, except denied ones."""
        if any(filter_covers(denied, pattern) for denied in self.denied.publish):
            return False
        return any(filter_covers(allowed, pattern) for allowed in self.publish)

    def may_subscribe(self, pattern: str) -> bool:
        """Check a filter; of a shared subscription `$share/GROUP/FILTER`, its FILTER.

        A filter that selects denied channels among others is allowed: their events are not
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
    """Check whether `pattern` selects every channel that `other` does; both are valid filters."""
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
    filled = (_fill_filter(pattern, user, client) for pattern in patterns)
    return tuple(pattern for pattern in filled if pattern is not None)


def _fill_filter(pattern: str, user: str, client: str) -> str | None:
    """Fill placeholders; None if a name is not one plain level: it could match others' channels."""
    names = {"%u": user, "%c": client}
    for placeholder, name in names.items():
        if placeholder in pattern and (not name or any(c in name for c in "+#/")):
            return None
    # In one pass, because a user may be called %c.
    filled = _PLACEHOLDER.sub(lambda found: names[found[0]], pattern)
    return filled if filled.startswith("$") == pattern.startswith("$") else None


def _fill_denied(pattern: str, user: str, client: str) -> str:
    """Fill placeholders of a denied filter; unfit names become `+`, so that no less is denied."""
    names = {"%u": user, "%c": client}
    levels = pattern.split("/")
    for place, level in enumerate(levels):
        found = [names[each] for each in _PLACEHOLDER.findall(level)]
        if any(not name or "+" in name or "#" in name for name in found):
            levels[place] = "+"
        elif found:
            levels[place] = _PLACEHOLDER.sub(lambda found: names[found[0]], level)
    return "/".join(levels)
