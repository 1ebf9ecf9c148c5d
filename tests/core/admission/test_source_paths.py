from __future__ import annotations

from accord.core.admission.reservation import path_from
from accord.core.overlay.link_state import LinkStateMap


def a_map(*links: tuple[str, str, int]) -> LinkStateMap:
    map_ = LinkStateMap()
    for one, other, latency_us in links:
        for source, target in ((one, other), (other, one)):
            map_.set_link(source, target, latency_us, 0.0, True, 0.0)
    return map_


def test_the_way_of_events_is_read_from_its_end() -> None:
    map_ = a_map(("a", "b", 10), ("b", "c", 10), ("a", "c", 50))
    assert path_from(map_, "c", "a", None) == ("a", "b", "c")
    assert path_from(map_, "x", "a", None) is None


def test_each_direction_has_its_own_delay() -> None:
    map_ = a_map(("a", "b", 10), ("b", "c", 10), ("a", "c", 50))
    map_.set_link("c", "a", 5, 0.0, True, 0.0)
    assert path_from(map_, "c", "a", None) == ("a", "c")


def test_a_known_way_stays_while_it_is_not_much_longer() -> None:
    map_ = a_map(("a", "b", 10), ("b", "d", 10), ("a", "c", 14), ("c", "d", 14))
    known = ("a", "c", "d")
    assert path_from(map_, "d", "a", known) == known
    map_.set_link("d", "c", 20, 0.0, True, 0.0)
    assert path_from(map_, "d", "a", known) == ("a", "b", "d")
    map_.set_link("d", "c", 14, 0.0, False, 0.0)
    assert path_from(map_, "d", "a", known) == ("a", "b", "d")
