"""Templates: the plug-in interface for the distribution logic of channels.

A channel's definition in the registry names its template. Each node has one object per template,
for all channels bound to it. It is called with local publications and with messages of its peers at
neighbours, and acts through its `context`: it sends events and template messages to neighbours,
delivers events to local clients, and watches the state of the overlay. Templates do no I/O and take
time as an argument; the simulator runs the same objects as a live node.

Each template names the channel options it knows, each with a check. Options are checked where a
channel is defined, so that the author sees the problem. Definitions from other nodes are accepted
as they are: a template uses its defaults for values it cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import ClassVar, Final, Protocol

from accord.core.channels.history.messages import PERSISTENT
from accord.core.channels.history.messages import problem_with as problem_with_persistent
from accord.core.model.former_names import CHANNEL_OPTIONS
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.route_manager import Requirement
from accord.core.overlay.signalling import TransitEvent

# Returns the expected value, or "" if the value is valid.
Check = Callable[[str], str]
_DIGITS: Final = 15


def one_of(*choices: str) -> Check:
    expected = f"expected {' or '.join(choices)}"
    return lambda text: "" if text in choices else expected


def whole_number(least: int, most: int) -> Check:
    def check(text: str) -> str:
        is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        if is_number and least <= int(text) <= most:
            return ""
        return f"expected a whole number from {least:,} to {most:,}"

    return check


def number(least: float, most: float) -> Check:
    def check(text: str) -> str:
        try:
            given = float(text)
        except ValueError:
            given = float("nan")
        is_right = isfinite(given) and least <= given <= most
        return "" if is_right else f"expected a number from {least:,g} to {most:,g}"

    return check


def problem_with_options(
    options: Mapping[str, str], known: Mapping[str, Check]
) -> tuple[str, str] | None:
    """Return the first invalid option and why; None if all are valid."""
    for name, text in options.items():
        if name == PERSISTENT:
            problem = problem_with_persistent(text)
        elif name in known:
            expected = known[name](text)
            problem = f"{expected}, got {text[:40]!r}" if expected else ""
        else:
            problem = _unknown(name, sorted((*known, PERSISTENT)))
        if problem:
            return name, problem
    return None


def _unknown(name: str, known: list[str]) -> str:
    renamed = CHANNEL_OPTIONS.get(name)
    if renamed in known:
        return f"the template has no such option, renamed to {renamed}"
    near = get_close_matches(name, known, n=1)
    if near:
        return f"the template has no such option, did you mean {near[0]}?"
    return f"the template has no such option, expected one of {', '.join(known)}"


# Guarantees of a template; `accord.sim.check_template` tests them.
NO_DUPLICATES: Final = "once"  # no member gets an event twice
BEST_EFFORT: Final = "best effort"  # only links lose events
COMPLETE: Final = "all"  # every member that stays gets every event
IN_ORDER: Final = "in order"  # events of one source arrive in publication order
SAME_ORDER: Final = "same order"  # all members deliver in the same order


class Context(Protocol):
    """The services of a node that a template may use."""

    name: str  # of the node
    incarnation: int  # larger each time the node is started
    map: LinkStateMap  # all nodes and links, kept up to date

    def neighbours(self) -> list[str]:
        """Neighbours whose links are up."""

    def send_message(self, neighbour: str, channel: str, body: bytes) -> None:
        """Send a template message to the same template at a neighbour."""

    def forward(self, neighbour: str, event: TransitEvent) -> None:
        """Send an event to the same template at a neighbour, with a header in `header`."""

    def is_queued(self, neighbour: str, channel: str, source: str, number: int) -> bool:
        """Whether a passed-on event is still queued here because the link is busy.

        Events sent to several neighbours at once by multicast are not tracked.
        """

    def send_routed(
        self, event: TransitEvent, destinations: list[str], requirement: Requirement
    ) -> None:
        """Send an event over routes that meet `requirement`, on several paths if required."""

    def can_accept(self, channel: str) -> bool:
        """Whether this node accepts more of a channel now.

        A template that promises `COMPLETE` checks this before each `deliver`. It buffers what
        cannot be delivered yet within bounds, applies backpressure to the source, and checks again
        after a while.
        """

    def deliver(self, event: TransitEvent) -> None:
        """Deliver an event to the local clients that want it."""

    def report_dropped(self, event: TransitEvent, cause: str, count: int = 1) -> None:
        """Record that `count` copies of an event end here; operators can look up the cause."""

    def definition(self, channel: str) -> ChannelDefinition | None:
        """Return the definition of a channel."""

    def watch(self, kind: str, callback: Callable[[str, str, bytes | None], None]) -> None:
        """Report all nodes' state records of a kind (link, need, channel), now and on change.

        The callback gets the node, the record's key, and its value, or None if it was deleted.
        """


_RENAMED: Final = {
    "published": "on_published",
    "feedback": "send_feedback",
    "carried": "on_event",
    "said": "on_message",
    "unsettled": "unconfirmed",
    "left": "retained_state",
}


class Template:
    """Base of all templates; one object per node and template.

    Methods do nothing by default, except `send_feedback`: it sends feedback over routes that meet
    the requirement of the channel.
    """

    promises: ClassVar[tuple[str, ...]] = ()
    # Options of its channels besides `persistent`, each with its check.
    options: ClassVar[Mapping[str, Check]] = {}
    # Whether the template also delivers to clients of the publishing node. Otherwise the node's
    # router has done so before `on_published` is called.
    delivers_own: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Refuse methods by their former names, which would never be called."""
        for former in _RENAMED.keys() & vars(cls).keys():
            raise TypeError(f"{cls.__name__}.{former} is now called {_RENAMED[former]}")

    def __init__(self, context: Context) -> None:
        self.context = context

    def on_published(
        self,
        event: TransitEvent,
        destinations: list[str],
        definition: ChannelDefinition,
        now_us: int,
    ) -> None:
        """Send a local client's event to `destinations`, the nodes that are interested in it."""

    def send_feedback(
        self,
        event: TransitEvent,
        node: str,
        definition: ChannelDefinition,
        now_us: int,  # noqa: ARG002
    ) -> None:
        """Send a local client's feedback on an event to the event's source at `node`."""
        requirement = Requirement(definition.max_delay_us, definition.paths, definition.resiliency)
        self.context.send_routed(event, [node], requirement)

    def on_event(self, neighbour: str, event: TransitEvent, now_us: int) -> None:
        """Handle an event passed on by the same template at a neighbour."""

    def on_message(self, neighbour: str, channel: str, body: bytes, now_us: int) -> None:
        """Handle a message of the same template at a neighbour."""

    def advance(self, now_us: int) -> None:
        """Run expired timers."""

    def next_due_us(self) -> int | None:
        return None

    def has_room(self, channel: str) -> bool:  # noqa: ARG002
        """Whether local clients may publish more to the channel now."""
        return True

    def unconfirmed(self, channel: str) -> list[int]:  # noqa: ARG002
        """Return the `event` numbers of local events that some member may still lack."""
        return []

    def retained_state(self) -> dict[str, int]:
        """Sizes of the template's state by kind; all zero some time after all members have left."""
        return {}

    def check_invariants(self) -> None:
        """Raise AssertionError if an invariant is violated."""
