"""What the HTTP API shows of a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from accord.core.monitoring.statistics import ClientStatus, Statistics


class NodeView(Protocol):
    """A running node, seen from outside. Called on its event loop, so it may look anywhere."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def is_ready(self) -> bool:
        """Whether clients are served: what was kept is read again, and it is not draining."""

    def statistics(self) -> Statistics: ...

    def clients(self) -> Iterable[ClientStatus]:
        """Sessions in an order that stays; only as many as wanted are taken from it."""


class NodeSummary(Struct, frozen=True, kw_only=True):
    """The node at a glance."""

    name: str
    version: str
    build: str  # with the native extension, or without where there was no C compiler
    is_ready: bool
    statistics: Statistics


class ClientPage(Struct, frozen=True, kw_only=True):
    """A page of sessions: `total` counts all of them."""

    total: int
    offset: int
    clients: tuple[ClientStatus, ...]
