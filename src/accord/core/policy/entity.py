"""The entity that uses a channel, as policies see it."""

from __future__ import annotations

from typing import Final

from accord.core.model.values import Value

Key = tuple[str, str, tuple[str, ...], str]


class Entity:
    """A client with its user, that user's groups and its node; "" means none.

    `names` are its names as selectors see them, without groups. `holding` are the bits of the
    conditions on resources that hold for it at present: the driver keeps it up to date (see
    `Policies.holding`).
    """

    __slots__ = (
        "_names",
        "client",
        "groups",
        "holding",
        "key",
        "node",
        "user",
    )

    def __init__(
        self, client: str, user: str = "", groups: tuple[str, ...] = (), node: str = ""
    ) -> None:
        self.client: Final = client
        self.user: Final = user
        self.groups: Final = groups
        self.node: Final = node
        self.key: Final[Key] = (client, user, groups, node)
        self.holding = 0
        self._names: dict[str, Value] | None = None  # built when first needed

    @property
    def names(self) -> dict[str, Value]:
        if self._names is None:
            self._names = _names(self.client, self.user, self.node)
        return self._names

    def with_holding(self, holding: int) -> Entity:
        """The same entity with other conditions in force."""
        entity = Entity(self.client, self.user, self.groups, self.node)
        entity.holding = holding
        return entity

    def __repr__(self) -> str:
        return f"Entity({self.client!r}, {self.user!r}, {self.groups!r}, {self.node!r})"


def _names(client: str, user: str, node: str) -> dict[str, Value]:
    names: dict[str, Value] = {}
    if client:
        names["client"] = client
    if user:
        names["user"] = user
    if node:
        names["node"] = node
    return names
