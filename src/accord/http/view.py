"""The port through which the HTTP API sees a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from accord.core.monitoring.statistics import ClientStatus, Statistics


class NodeView(Protocol):
    """A running node, seen from outside. Called on its event loop, so it may access anything."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def is_ready(self) -> bool:
        """Whether clients are served: stored state is recovered, and the node is not draining."""

    def statistics(self) -> Statistics: ...

    def clients(self) -> Iterable[ClientStatus]:
        """Sessions in a stable order; consumed lazily, only as many as needed."""


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
