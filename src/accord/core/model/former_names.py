"""Names of earlier builds: translated where stored data is read, and named in errors.

Definitions, policies and ledger entries are always written with the present names. Exported names
by their former names are found by `deprecated`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

SETTINGS: Final[Mapping[tuple[str | int, ...], str]] = {
    ("net", "carry"): "transports",
    ("net", "hello_bytes_per_s"): "ping_bytes_per_s",
    ("quality", "patience_ms"): "reaction_timeout_ms",
}
CHANNEL_OPTIONS: Final = {"laggards": "slow_members", "patience_ms": "stall_timeout_ms"}
STRATEGIES: Final = {"first come": "fifo"}
CHANNELS: Final = {"$accord/past": "$accord/history"}
CAUSES: Final = {
    "others were before it": "position already passed",
    "a member does not keep up": "slow member",
    "missed: this node did not keep up": "missed: dropped as slow member",
    "missed: its source is gone": "missed: source gone",
    "the past of a node can't be had": "history unavailable",
    "could not be handed over": "delivery failed",
    "the way is not known": "unknown route",
    "no way to all members": "no path to all members",
    "no room for a secondary node": "child buffer full",
    "no room on the way to a parent": "parent buffer full",
}
_CAUSES: Final = tuple(CAUSES)


def current_options(options: Mapping[str, str]) -> dict[str, str]:
    """A channel's stored options by their present names."""
    return {CHANNEL_OPTIONS.get(name, name): text for name, text in options.items()}


def current_detail(detail: str) -> str:
    """The detail of a stored ledger entry, with the present name of its cause."""
    if detail.startswith(_CAUSES):
        for former, cause in CAUSES.items():
            if detail.startswith(former):
                return cause + detail[len(former) :]
    return detail


def deprecated(module: dict[str, Any], renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module: finds exported names by their former names, with a warning."""
    name = module["__name__"]

    def find(former: str) -> Any:
        if former not in renamed:
            raise AttributeError(f"module {name!r} has no attribute {former!r}")
        new = renamed[former]
        warnings.warn(f"{name}.{former} is now {new}", DeprecationWarning, stacklevel=2)
        return module[new]

    return find
