"""Routes that start at this node: selection, set-up, refresh and make-before-break replacement.

Routes are explicit and soft state: signalled along a given path and refreshed, as in RSVP-TE. A
flow is the set of routes to one destination with one requirement; channels with the same
requirement share it. Routes stay as they are while they meet the requirement. When one does not (a
link failed, or the delay is too long), paths are computed afresh: routes on chosen paths stay, new
ones are set up, and the rest drains, to be torn down only once the new ones are established or have
failed. A flow whose routes have become much more likely to fail than when they were chosen is
examined, too, and moves if others fail at most half as often. New routes have new numbers, so old
and new never mix. Tear-down is delayed: signals overtake events, and events still in transit would
find no forwarding entry.

If no path meets the maximum delay, the shortest ones are used and `is_met` is false: late is better
than never, and the operator can see it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from accord.core.overlay.anti_entropy import earlier
from accord.core.overlay.budgets import Budgets
from accord.core.overlay.disjoint_paths import are_disjoint, disjoint_paths
from accord.core.overlay.forwarding_table import Sent, share_of
from accord.core.overlay.k_shortest_paths import OverlayPath, shortest_paths
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.resiliency import choose, resiliency
from accord.core.overlay.signalling import Establish, Established, NotEstablished, TearDown

__all__ = ["DRAINING", "ESTABLISHED", "SETTING_UP", "Flow", "Requirement", "Route", "RouteManager"]

SETTING_UP: Final = 0  # no reply yet
ESTABLISHED: Final = 1
DRAINING: Final = 2  # in use until its replacements are established

_TRIES: Final = 5
_FIRST_TRY_US: Final = 300_000
_RETRY_US: Final = 1_000_000  # between two attempts to find better routes
_WORTH: Final = 0.5  # better routes replace the current ones if they fail at most half as often
_NOTABLE: Final = 0.01  # smaller changes of their probability of failure do not matter
_AT_ONCE_US: Final = 50_000  # the same if there is no route at all, or a link came back
_LINGER_US: Final = 2_000_000  # tear-down delay, for events in transit on the route
_AVOIDED_US: Final = 3_000_000  # before a path that could not be established is retried


class Requirement(msgspec.Struct, frozen=True):
    """Requirements of a channel on its routes; the defaults mean the single shortest path.

    With `resiliency` above 0, as many paths as that takes, at most `paths`; else exactly `paths`.
    """

    max_delay_us: int = 0
    paths: int = 1
    resiliency: float = 0.0
    depth: int = 16


class Route:
    """A numbered path that is in use or being set up."""

    __slots__ = ("delay_us", "number", "path", "refresh_us", "state", "tries")

    def __init__(self, number: int, path: tuple[str, ...], delay_us: int) -> None:
        self.number = number
        self.path = path
        self.delay_us = delay_us
        self.state = SETTING_UP
        self.tries = 0
        self.refresh_us = 0  # when to (re)send the set-up or refresh


class Flow:
    """The routes to one destination with one requirement."""

    def __init__(self, destination: str, requirement: Requirement) -> None:
        self.destination = destination
        self.requirement = requirement
        self.routes: list[Route] = []
        self.resiliency = 0.0  # of the routes, by the current map
        self.examined = 0.0  # the same when other routes were last considered
        self.is_met = False
        self.used_us = 0
        self.retry_us = 0  # when to look for better routes; 0 if nothing is missing
        self.changes = 0
        self.version = 0  # of the map that the routes were computed from
        self.openings = 0  # of that map
        self.avoided: dict[tuple[str, ...], int] = {}

    def usable(self) -> list[Route]:
        """Established routes; draining ones only if none is established."""
        ready = [each for each in self.routes if each.state == ESTABLISHED]
        return ready or [each for each in self.routes if each.state == DRAINING]

    def in_use(self) -> list[Route]:
        """Routes that events are sent by: draining ones too, until all new ones are established."""
        return [each for each in self.routes if each.state != SETTING_UP]


class RouteManager:
    """All flows of one source; `sends` collects signals for neighbours."""

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        incarnation: int,
        map_: LinkStateMap,
        budgets: Budgets,
        *,
        refresh_us: int,
        idle_us: int,
        on_ready: Callable[[Flow], None],
        on_end: Callable[[Flow], None],
    ) -> None:
        self.name = name
        self.map = map_
        self.budgets = budgets
        self.refresh_us = refresh_us
        self.idle_us = idle_us  # idle timeout of a flow
        self.flows: dict[tuple[str, Requirement], Flow] = {}
        self.sends: list[Sent] = []
        self.computed = 0
        self._on_ready = on_ready
        self._on_end = on_end
        self._number = incarnation * 1_000
        self._by_route: dict[int, Flow] = {}  # by route number
        self._by_link: dict[tuple[str, str], dict[Flow, bool]] = {}  # by link
        self._tear_downs: deque[tuple[int, str, TearDown]] = deque()  # when to send it, and to whom
        self._seen_version = map_.version
        self._due_us = 0

    def flow(self, destination: str, requirement: Requirement, now_us: int) -> Flow:
        """The flow to use; created if missing."""
        key = (destination, requirement)
        flow = self.flows.get(key)
        if flow is None:
            flow = Flow(destination, requirement)
            self.flows[key] = flow
            flow.used_us = now_us
            self._compute(flow, now_us)
        flow.used_us = now_us
        return flow

    def on_map_changed(self, now_us: int) -> None:
        """Re-examine flows over changed links, and hasten the retry of incomplete ones."""
        changed = self.map.changed_since(self._seen_version)
        self._seen_version = self.map.version
        self._stop_avoiding()
        concerned: dict[Flow, bool] = {}
        if changed is None:  # too many changes: any link may have changed
            concerned = dict.fromkeys(self.flows.values(), True)
        else:
            for link in changed:
                for flow in self._by_link.get(link, ()):
                    concerned[flow] = True
        for flow in concerned:
            self._check_flow(flow, now_us)
        for flow in self.flows.values():
            if flow.retry_us:
                # A link that came back up may be all that was missing.
                has_cause = not flow.is_met and flow.openings != self.map.openings
                wait_us = _AT_ONCE_US if has_cause or not flow.routes else _RETRY_US
                flow.retry_us = min(flow.retry_us, now_us + wait_us)
                self._due_us = min(self._due_us, flow.retry_us)

    def on_established(self, neighbour: str, signal: Established, now_us: int) -> None:
        flow = self._by_route.get(signal.route)
        if flow is None:
            return
        route = _route_of(flow, signal.route)
        if route.path[1] != neighbour or route.state != SETTING_UP:
            return
        route.state = ESTABLISHED
        route.tries = 0
        route.refresh_us = now_us + self.refresh_us
        self._finish_draining(flow, now_us)
        self._on_ready(flow)

    def on_not_established(self, neighbour: str, signal: NotEstablished, now_us: int) -> None:
        flow = self._by_route.get(signal.route)
        if flow is None:
            return
        route = _route_of(flow, signal.route)
        if route.path[1] == neighbour:
            self._on_route_failed(flow, route, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        """Fail the routes over a neighbour at once, before the map reports the link down."""
        for flow in list(self.flows.values()):
            for route in list(flow.routes):
                if route.path[1] == neighbour:
                    self._on_route_failed(flow, route, now_us)

    def advance(self, now_us: int) -> None:
        while self._tear_downs and self._tear_downs[0][0] <= now_us:
            _, neighbour, signal = self._tear_downs.popleft()
            self.sends.append((neighbour, signal))
        if now_us < self._due_us:
            return
        due_us = now_us + self.refresh_us
        for key, flow in list(self.flows.items()):
            if flow.used_us + self.idle_us <= now_us:
                self._end(key, flow)
                continue
            if 0 < flow.retry_us <= now_us:
                self._retry(flow, now_us)
            for route in list(flow.routes):
                if route.refresh_us <= now_us and route.number in self._by_route:
                    self._signal(flow, route, now_us)
            due_us = min(
                due_us,
                flow.used_us + self.idle_us,
                *(route.refresh_us for route in flow.routes),
                flow.retry_us or due_us,
            )
        self._due_us = due_us

    def next_due_us(self) -> int | None:
        due_us = self._due_us if self.flows else None
        return earlier(due_us, self._tear_downs[0][0]) if self._tear_downs else due_us

    def check_invariants(self) -> None:
        numbers = [route.number for flow in self.flows.values() for route in flow.routes]
        assert sorted(numbers) == sorted(self._by_route)
        for flow in self.flows.values():
            for route in flow.routes:
                assert self._by_route[route.number] is flow
                assert (route.path[0], route.path[-1]) == (self.name, flow.destination)
                assert len(set(route.path)) == len(route.path)
                for link in _links(route.path):
                    assert flow in self._by_link[link]
            if not flow.routes:
                assert flow.retry_us

    def _check_flow(self, flow: Flow, now_us: int) -> None:
        """Recompute the flow only if a route no longer meets the requirement."""
        is_broken = False
        for route in flow.routes:
            delay_us = self.map.delay_us(route.path)
            if delay_us is None:
                is_broken = True
            else:
                route.delay_us = delay_us
                limit_us = flow.requirement.max_delay_us
                is_broken = is_broken or (flow.is_met and 0 < limit_us < delay_us)
        if is_broken:
            self._compute(flow, now_us)
            return
        flow.resiliency = self._resiliency(flow)
        flow.is_met = self._is_met(flow)
        if not flow.retry_us and (_is_degraded(flow) or not flow.is_met):
            flow.retry_us = now_us + _RETRY_US
            self._due_us = min(self._due_us, flow.retry_us)

    def _stop_avoiding(self) -> None:
        """Stop avoiding paths that the map reports as down: it also reports their recovery."""
        for flow in self.flows.values():
            for path in list(flow.avoided):
                if self.map.delay_us(path) is None:
                    del flow.avoided[path]

    def _retry(self, flow: Flow, now_us: int) -> None:
        """Look for better paths where some are missing or not disjoint."""
        if not flow.is_met:
            if flow.version != self.map.version or flow.avoided:
                self._compute(flow, now_us)
                return
        elif flow.openings != self.map.openings or flow.avoided or _is_degraded(flow):
            found = self._choose(flow, now_us)
            flow.examined = self._resiliency(flow)
            if 1 - found[1] <= _WORTH * (1 - self._resiliency(flow)):
                self._adopt(flow, *found, now_us)
                return
        flow.retry_us = now_us + _RETRY_US

    def _resiliency(self, flow: Flow) -> float:
        """Resiliency of the current routes by the current map."""
        current = [each for each in flow.routes if each.state != DRAINING]
        return resiliency([OverlayPath(each.path, each.delay_us) for each in current], self.map)

    def _compute(self, flow: Flow, now_us: int) -> None:
        self._adopt(flow, *self._choose(flow, now_us), now_us)

    def _adopt(self, flow: Flow, chosen: list[OverlayPath], reached: float, now_us: int) -> None:
        flow.retry_us = 0
        flow.resiliency = flow.examined = reached
        wanted = {path.nodes: path.delay_us for path in chosen}
        for route in list(flow.routes):
            if route.path in wanted:
                route.delay_us = wanted.pop(route.path)
                if route.state == DRAINING:
                    route.state = ESTABLISHED
            elif route.state == SETTING_UP:
                self._drop(flow, route)
            else:
                route.state = DRAINING
        for path, delay_us in wanted.items():
            self._add(flow, path, delay_us, now_us)
        flow.changes += bool(wanted)
        flow.is_met = self._is_met(flow)
        if len(chosen) < flow.requirement.paths or not flow.is_met or not are_disjoint(chosen):
            flow.retry_us = now_us + _RETRY_US
        self._finish_draining(flow, now_us)
        self._due_us = min(self._due_us, flow.retry_us or now_us)

    def _choose(self, flow: Flow, now_us: int) -> tuple[list[OverlayPath], float]:
        self.computed += 1
        flow.version, flow.openings = self.map.version, self.map.openings
        requirement = flow.requirement
        for path, until_us in list(flow.avoided.items()):
            if until_us <= now_us:
                del flow.avoided[path]
        depth = max(requirement.depth, requirement.paths)
        for bound_us in (requirement.max_delay_us, 0):
            found = shortest_paths(self.map, self.name, flow.destination, depth, bound_us)
            usable = [path for path in found if path.nodes not in flow.avoided]
            if usable:
                return self._best(flow, usable, bound_us)
            if not requirement.max_delay_us:
                break
        return [], 0.0

    def _best(
        self, flow: Flow, paths: list[OverlayPath], bound_us: int
    ) -> tuple[list[OverlayPath], float]:
        found = self._combine(paths, flow.requirement)
        if are_disjoint(found[0]):
            return found
        others = disjoint_paths(self.map, paths[0], flow.requirement.paths - 1, bound_us)
        more = [each for each in others if each.nodes not in flow.avoided and each not in paths]
        return self._combine(paths + more, flow.requirement) if more else found

    def _combine(
        self, paths: list[OverlayPath], requirement: Requirement
    ) -> tuple[list[OverlayPath], float]:
        least = 1 if requirement.resiliency else requirement.paths
        for count in range(least, requirement.paths + 1):
            chosen, reached = choose(paths, count, self.map)
            if reached >= requirement.resiliency or count == requirement.paths:
                return chosen, reached
        return [], 0.0

    def _is_met(self, flow: Flow) -> bool:
        required = flow.requirement
        current = [each for each in flow.routes if each.state != DRAINING]
        return (
            bool(current)
            and flow.resiliency >= required.resiliency
            and not any(0 < required.max_delay_us < each.delay_us for each in current)
        )

    def _add(self, flow: Flow, path: tuple[str, ...], delay_us: int, now_us: int) -> None:
        self._number += 1
        route = Route(self._number, path, delay_us)
        flow.routes.append(route)
        self._by_route[route.number] = flow
        for link in _links(path):
            self._by_link.setdefault(link, {})[flow] = True
        self._signal(flow, route, now_us)

    def _signal(self, flow: Flow, route: Route, now_us: int) -> None:
        """Set a route up, or refresh it; replies to a refresh are ignored."""
        if route.state != SETTING_UP:
            route.refresh_us = now_us + self.refresh_us
        elif route.tries == _TRIES:
            self._on_route_failed(flow, route, now_us)
            return
        else:
            route.refresh_us = now_us + max(_FIRST_TRY_US, 3 * route.delay_us) * (route.tries + 1)
            route.tries += 1
        delays_us = tuple(self.map.latency_us(*link) or 0 for link in _links(route.path))
        limit_us = flow.requirement.max_delay_us
        signal = Establish(self.name, route.number, route.path, limit_us, delays_us)
        if share_us := share_of(signal, self.name):
            self.budgets.set((self.name, route.number), share_us)
        self.sends.append((route.path[1], signal))

    def _on_route_failed(self, flow: Flow, route: Route, now_us: int) -> None:
        """Drop a route that failed or could not be set up, and recompute at once."""
        if self._by_route.get(route.number) is not flow:
            return  # already dropped
        flow.avoided[route.path] = now_us + _AVOIDED_US
        self._drop(flow, route)
        self._compute(flow, now_us)

    def _finish_draining(self, flow: Flow, now_us: int) -> None:
        """Tear draining routes down once no set-up is pending and a route is established."""
        if any(each.state == SETTING_UP for each in flow.routes):
            return
        if not any(each.state == ESTABLISHED for each in flow.routes):
            return
        for route in list(flow.routes):
            if route.state == DRAINING:
                self._drop(flow, route, now_us + _LINGER_US)

    def _end(self, key: tuple[str, Requirement], flow: Flow) -> None:
        for route in list(flow.routes):
            self._drop(flow, route)
        del self.flows[key]
        self._on_end(flow)

    def _drop(self, flow: Flow, route: Route, tear_down_us: int = 0) -> None:
        """Remove a route from its flow; tear it down at `tear_down_us`, or now if that is 0."""
        flow.routes.remove(route)
        del self._by_route[route.number]
        self.budgets.drop((self.name, route.number))
        rest = {link: True for each in flow.routes for link in _links(each.path)}
        for link in _links(route.path):
            if link not in rest:
                users = self._by_link[link]
                users.pop(flow, None)
                if not users:
                    del self._by_link[link]
        signal = TearDown(self.name, route.number)
        if tear_down_us:
            self._tear_downs.append((tear_down_us, route.path[1], signal))
        else:
            self.sends.append((route.path[1], signal))


def _is_degraded(flow: Flow) -> bool:
    """Whether its routes are much more likely to fail than when others were last considered."""
    failure, before = 1 - flow.resiliency, 1 - flow.examined
    return _WORTH * failure >= before and failure >= before + _NOTABLE


def _route_of(flow: Flow, number: int) -> Route:
    return next(each for each in flow.routes if each.number == number)


def _links(path: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(pairwise(path))
