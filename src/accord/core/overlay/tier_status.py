"""Status of parents and children, for operators."""

from __future__ import annotations

import msgspec


class ChildStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A secondary node, as its parent sees it; `lost` counts events it did not get, by cause."""

    name: str
    is_linked: bool
    is_active: bool
    needs: int = 0
    waiting: int = 0  # events for it
    waiting_bytes: int = 0
    unsettled: int = 0  # its events that are not confirmed yet
    lost: dict[str, int] = {}
    problem: str = ""  # with its name


class ParentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A parent, as its child sees it; `lost` counts events it could not hold for the child."""

    name: str
    is_linked: bool
    is_active: bool
    is_standby: bool
    latency_us: int = 0
    waiting: int = 0  # events it holds for this node
    lost: int = 0


class TierStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A secondary node: its parents in order of preference, and its events queued for them."""

    parents: tuple[ParentStatus, ...]
    configured: int = 0  # number of configured parents
    switches: int = 0  # of the active parent
    waiting: int = 0  # events of its clients that are not confirmed yet
    waiting_bytes: int = 0
    delivered: int = 0
    again: int = 0  # duplicates that were dropped
    lost: dict[str, int] = {}  # events of its clients, by cause
