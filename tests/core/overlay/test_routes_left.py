"""Routes that are left for others: events on their way must still find it."""

from __future__ import annotations

from accord.core.overlay.budgets import Budgets
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.route_manager import Requirement, RouteManager
from accord.core.overlay.signalling import Establish, Established, TearDown

MS = 1_000
S = 1_000_000


def linked(map_: LinkStateMap, one: str, other: str, latency_us: int) -> None:
    for source, target in ((one, other), (other, one)):
        map_.set_link(source, target, latency_us, 0.0, is_up=True, failure=0.01)


def test_a_route_is_torn_down_when_what_went_by_it_has_arrived() -> None:
    """Signals go before events: at once, it would take the way from those behind it."""
    map_ = LinkStateMap()
    linked(map_, "seattle", "denver", 12 * MS)
    linked(map_, "denver", "washington", 17 * MS)
    linked(map_, "seattle", "orlando", 20 * MS)
    linked(map_, "orlando", "washington", 20 * MS)
    routes = RouteManager(
        "seattle", 1, map_, Budgets(), refresh_us=60 * S, idle_us=600 * S,
        on_ready=lambda _: None, on_end=lambda _: None,
    )  # fmt: skip
    flow = routes.flow("washington", Requirement(80 * MS), 0)
    (old,) = flow.routes
    assert old.path == ("seattle", "denver", "washington")
    routes.on_established("denver", Established("seattle", old.number), MS)
    routes.sends.clear()

    linked(map_, "seattle", "denver", 75 * MS)
    routes.on_map_changed(S)
    assert flow.in_use() == [old], "until the other is there"
    ((neighbour, asked),) = routes.sends
    assert isinstance(asked, Establish)
    assert (neighbour, asked.path) == ("orlando", ("seattle", "orlando", "washington"))
    routes.sends.clear()

    routes.on_established("orlando", Established("seattle", asked.route), S + 80 * MS)
    assert [route.number for route in flow.in_use()] == [asked.route]
    assert routes.sends == []
    routes.advance(S + 80 * MS)
    assert routes.sends == []
    torn_us = routes.next_due_us()
    assert torn_us is not None
    assert torn_us < 10 * S
    routes.advance(torn_us - 1)
    assert routes.sends == []
    routes.advance(torn_us)
    assert routes.sends == [("denver", TearDown("seattle", old.number))]
    routes.check_invariants()
