"""Bounds for events and interests received from other nodes.

Other nodes are trusted, but not blindly: an out-of-range value would only fail later, where it is
encoded, added up or written to disk, at the expense of unrelated events. Channels and properties
are checked where an event becomes a message.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.channels import MAX_CHANNEL_BYTES, problem_with_filter
from accord.core.model.units import IMPORTANCES
from accord.core.overlay.interests import (
    MAX_CONDITION_BYTES,
    MAX_FILTER_BYTES,
    MAX_LEVELS,
    Interest,
)
from accord.core.overlay.signalling import TransitEvent

MAX_NAME_BYTES: Final = 65_535
MAX_NUMBER: Final = (1 << 63) - 1  # so that the difference of two fits into 64 bits
MAX_EXPIRY_S: Final = 0xFFFF_FFFF
MAX_QOS: Final = 2
MAX_AGE_US: Final = 1 << 49  # almost 18 years
MAX_DEADLINE_US: Final = 1 << 53  # longer than any expiry
# Of one copy of an event: at most one entry per node, and the routes to all of them.
MAX_NODES: Final = 4_096
MAX_ROUTES: Final = 8 * MAX_NODES
DAMAGED: Final = "damaged on the way"
_SURELY_SHORT: Final = MAX_NAME_BYTES // 4
_FILTER_BYTES: Final = MAX_FILTER_BYTES + len("/#")


def problem_with_event(event: TransitEvent) -> str | None:
    """Why an event is invalid, or None."""
    if len(event.trail) > MAX_NODES or len(event.sequences) > MAX_NODES:
        return f"expected {MAX_NODES} nodes at most"
    if len(event.channel) > MAX_CHANNEL_BYTES:
        return f"expected a channel of at most {MAX_CHANNEL_BYTES} bytes"
    if len(event.routes) > MAX_ROUTES:
        return f"expected {MAX_ROUTES} routes at most, got {len(event.routes)}"
    for name in (event.publisher, event.source, event.child):
        if problem := problem_with_name(name):
            return problem
    for number in (event.event, event.child_number, event.number, event.incarnation):
        if not 0 <= number <= MAX_NUMBER:
            return f"expected a number from 0 to {MAX_NUMBER}, got {number}"
    if not -1 <= event.expiry_s <= MAX_EXPIRY_S:
        return f"expected an expiry up to {MAX_EXPIRY_S} s, got {event.expiry_s}"
    if not 0 <= event.qos <= MAX_QOS:
        return f"expected QoS 0, 1 or 2, got {event.qos}"
    if not 0 <= event.importance < IMPORTANCES:
        return f"expected an importance below {IMPORTANCES}, got {event.importance}"
    if not 0 <= event.deadline_us <= MAX_DEADLINE_US:
        return f"expected a deadline up to {MAX_DEADLINE_US} us, got {event.deadline_us}"
    for age_us in (event.age_us, *[each for _, each in event.trail]):
        if not 0 <= age_us <= MAX_AGE_US:
            return f"expected an age up to {MAX_AGE_US} us, got {age_us}"
    return None


def problem_with_interest(need: Interest) -> str | None:
    """Why an interest is invalid, or None.

    A node announces a wider interest if its own exceeds the limits (`interests`). Levels are
    limited because each takes far more memory than its name.
    """
    if problem := problem_with_filter(need.filter):
        return problem
    if need.filter.count("/") > MAX_LEVELS or len(need.filter.encode()) > _FILTER_BYTES:
        return f"expected a filter of at most {MAX_LEVELS} levels and {MAX_FILTER_BYTES} bytes"
    if len(need.where.encode()) + len(need.xpath.encode()) > MAX_CONDITION_BYTES:
        return f"expected a condition of at most {MAX_CONDITION_BYTES} bytes"
    return None


def problem_with_name(name: str) -> str | None:
    """Why it cannot be the name of a node or client, or None."""
    if "\0" in name:
        return "expected a name without a null character"
    if len(name) > _SURELY_SHORT and len(name.encode()) > MAX_NAME_BYTES:
        return f"expected a name of at most {MAX_NAME_BYTES} bytes"
    return None
