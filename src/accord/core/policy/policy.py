"""A policy as an administrator writes it: context → precedence, importance, preferences.

The context is any combination of conditions; an omitted one is met by everything. Names with `*`
are patterns. An entity without a name of a kind (a client without a user) meets no condition on
names of that kind.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from accord.core.policy.preferences import NO_PREFERENCES, PRESETS, Preferences

GUARANTEES: Final = ("none", "full")
OPERATIONS: Final = ("publish", "subscribe", "query")
# Resources that `when` can refer to. Those of the node are the same for all entities.
NODE_RESOURCES: Final = frozenset(
    ("cpu_percent", "memory_mb", "backlog", "queued_bytes", "sent_kbps")
)
CLIENT_RESOURCES: Final = frozenset(("link_kbps", "link_rtt_ms", "client_queued_bytes"))
# Names that `who` can refer to.
ENTITY_NAMES: Final = ("client", "user", "group", "node")
# Name by which `where` refers to the size of an event, besides the event's attributes.
PAYLOAD_BYTES: Final = "payload_bytes"


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions on operation, entity, event and resources, and the resulting settings.

    `importance` None and preferences of None leave the decision to other policies; so does
    `guarantee`, which is what a subscription is guaranteed: "none", "full", or a share of the nodes
    on its path.
    """

    name: str
    description: str = ""
    operation: tuple[str, ...] = ()
    channel: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    who: str = ""
    where: str = ""
    when: str = ""
    precedence: int = 0
    importance: int | None = None
    preferences: str | Preferences | None = None
    guarantee: str | float | None = None

    @property
    def resolved_preferences(self) -> Preferences:
        """The preferences, with a preset resolved by name."""
        if isinstance(self.preferences, str):
            return PRESETS[self.preferences]
        return self.preferences or NO_PREFERENCES
