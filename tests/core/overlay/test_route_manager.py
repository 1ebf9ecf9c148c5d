from __future__ import annotations

from accord.core.overlay.budgets import Budgets
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.route_manager import ESTABLISHED, Flow, Requirement, RouteManager
from accord.core.overlay.signalling import Establish, Established, NotEstablished

MS = 1_000
S = 1_000_000


def map_of(*links: str) -> LinkStateMap:
    """Links of 10 ms by the letters of their ends."""
    built = LinkStateMap()
    for ends in links:
        set_link(built, ends, is_up=True)
    return built


def set_link(map_: LinkStateMap, ends: str, *, is_up: bool, latency_ms: int = 10) -> None:
    for source, target in ((ends[0], ends[1]), (ends[1], ends[0])):
        map_.set_link(source, target, latency_ms * MS, 0.0, is_up, 0.01)


class Source:
    """Node a, which gets what it asks for at once, by links that are there."""

    def __init__(self, map_: LinkStateMap) -> None:
        self.map = map_
        self.routes = RouteManager(
            "a",
            1,
            map_,
            Budgets(),
            refresh_us=5 * S,
            idle_us=600 * S,
            on_ready=lambda _: None,
            on_end=lambda _: None,
        )

    def run(self, until_us: int, now_us: int = 0) -> None:
        self.routes.on_map_changed(now_us)
        for at_us in range(now_us, until_us, 50 * MS):
            self.routes.advance(at_us)
            self.answer(at_us)
            self.routes.check_invariants()

    def answer(self, now_us: int) -> None:
        signals = list(self.routes.sends)
        self.routes.sends.clear()
        for neighbour, signal in signals:
            if isinstance(signal, Establish) and self.map.delay_us(signal.path) is not None:
                answer = Established(signal.source, signal.route)
                self.routes.on_established(neighbour, answer, now_us)


def ready(flow: Flow) -> list[str]:
    return sorted("".join(route.path) for route in flow.routes if route.state == ESTABLISHED)


def test_paths_that_fail_together_are_left_when_others_come() -> None:
    map_ = map_of("ab", "bc", "cz", "bd", "dz", "ae", "ez")
    set_link(map_, "ez", is_up=False)
    source = Source(map_)
    flow = source.routes.flow("z", Requirement(paths=2), 0)
    source.run(1 * S)
    assert ready(flow) == ["abcz", "abdz"]
    set_link(map_, "ez", is_up=True)
    source.run(4 * S, now_us=1 * S)
    assert ready(flow) == ["abcz", "aez"]
    changes = flow.changes
    for latency_ms in (11, 12, 13):
        set_link(map_, "dz", is_up=True, latency_ms=latency_ms)
        source.run(10 * S, now_us=4 * S)
    assert flow.changes == changes, "what does not fail together stays"


def test_what_can_not_be_better_is_not_computed_again() -> None:
    map_ = map_of("ab", "bc", "cz", "bd", "dz")
    source = Source(map_)
    flow = source.routes.flow("z", Requirement(paths=2), 0)
    source.run(1 * S)
    computed = source.routes.computed
    for latency_ms in range(11, 20):
        set_link(map_, "cd", is_up=False, latency_ms=latency_ms)
        set_link(map_, "bd", is_up=True, latency_ms=latency_ms)
        source.run(latency_ms * S, now_us=(latency_ms - 1) * S)
    assert source.routes.computed == computed
    assert ready(flow) == ["abcz", "abdz"]


def test_a_path_that_failed_is_used_again_as_soon_as_the_map_has_it_back() -> None:
    map_ = map_of("ab", "bz", "ac", "cd", "dz")
    source = Source(map_)
    flow = source.routes.flow("z", Requirement(max_delay_us=25 * MS), 0)
    source.run(1 * S)
    assert ready(flow) == ["abz"]
    broken = NotEstablished("a", flow.routes[0].number, "b", "the link to z is down")
    source.routes.on_not_established("b", broken, 1 * S)
    set_link(map_, "bz", is_up=False)
    source.run(1_500 * MS, now_us=1 * S)
    assert ready(flow) == ["acdz"], "late is better than never"
    set_link(map_, "bz", is_up=True)
    source.run(1_700 * MS, now_us=1_500 * MS)
    assert ready(flow) == ["abz"]
    assert flow.is_met
