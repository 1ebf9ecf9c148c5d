"""The clients that subscribed to a channel, counted or listed for operators.

The router keeps subscriptions by filter and computes receivers only where something is published.
`SubscriberCounts` looks up the filters of each channel, and reads the clients of a filter once:
thousands of channels are mostly selected by the same few.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from accord.core.router.fan_out import RouterSubscription
from accord.core.router.router import Router, SelectedSubscriptions, each_subscription

_FEW: Final = 8


def client_subscriptions(router: Router, channel: str) -> Iterator[RouterSubscription]:
    """Subscriptions of clients that select `channel`, except where it is denied to the client."""
    for selected in router.subscriptions_to(channel):
        for each in each_subscription(selected):
            if not each.receiver.is_remote and not (each.denied and each.denies(channel)):
                yield each


class SubscriberCounts:
    """Counts while nothing changes: make another after a return to the event loop."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._clients: dict[int, frozenset[str]] = {}  # of what the router keeps for one filter
        self._together: dict[tuple[int, ...], frozenset[str]] = {}  # of several large ones
        self._is_denying = False

    def count(self, channel: str) -> int:
        """How many clients subscribed to `channel`."""
        large: list[int] = []
        few: list[str] = []
        for selected in self._router.subscriptions_to(channel):
            if isinstance(selected, RouterSubscription):
                self._is_denying = self._is_denying or bool(selected.denied)
                if not selected.receiver.is_remote:
                    few.append(selected.receiver.name)
                continue
            which = id(selected)
            clients = self._clients.get(which)
            if clients is None:
                clients = self._clients[which] = self._clients_of(selected)
            if len(clients) > _FEW:
                large.append(which)
            else:
                few += clients
        if self._is_denying:  # it depends on the channel
            return len({each.receiver.name for each in client_subscriptions(self._router, channel)})
        if not large:
            return len(few) if len(few) < 2 else len(set(few))
        together = self._union(large)
        return len(together) + len(set(few) - together if few else ())

    def _clients_of(self, selected: SelectedSubscriptions) -> frozenset[str]:
        subscriptions = list(each_subscription(selected))
        self._is_denying = self._is_denying or any(each.denied for each in subscriptions)
        return frozenset(
            each.receiver.name for each in subscriptions if not each.receiver.is_remote
        )

    def _union(self, large: list[int]) -> frozenset[str]:
        if len(large) == 1:
            return self._clients[large[0]]
        key = tuple(large)
        known = self._together.get(key)
        if known is None:
            several = [self._clients[each] for each in large]
            known = self._together[key] = frozenset().union(*several)
        return known
