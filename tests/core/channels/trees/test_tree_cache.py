from __future__ import annotations

from accord.core.channels.trees.tree_cache import REFRESH_US, TreeCache
from accord.core.overlay.link_state import LinkStateMap


def a_map(links: str) -> LinkStateMap:
    net = LinkStateMap()
    for each in links.split():
        net.set_link(each[0], each[1], 10, 0.0, True, 0.0)
        net.set_link(each[1], each[0], 10, 0.0, True, 0.0)
    return net


def test_a_tree_stays_while_it_is_good() -> None:
    net = a_map("ab bc cd da")
    growing = TreeCache(net)
    tree = growing.tree("a", ("a", "b"), 1.5, 0)
    net.set_link("c", "d", 90, 0.0, True, 0.0)  # none of its links
    net.drop_link("c", "d")
    assert growing.tree("a", ("a", "b"), 1.5, 1) is tree
    net.set_link("c", "d", 10, 0.0, True, 0.0)
    net.set_link("a", "b", 10, 0.0, False, 0.0)
    other = growing.tree("a", ("a", "b"), 1.5, 2)
    assert other.tree.links() == [("a", "d"), ("d", "c"), ("c", "b")]
    assert growing.built == 2
    growing.check_invariants()


def test_members_nobody_knows_of_are_looked_for_again() -> None:
    net = a_map("ab")
    growing = TreeCache(net)
    assert growing.tree("a", ("b", "c"), 1.5, 0).missing == ("c",)
    net.set_link("b", "c", 10, 0.0, True, 0.0)
    net.set_link("c", "b", 10, 0.0, True, 0.0)
    assert growing.tree("a", ("b", "c"), 1.5, 1).missing == ()


def test_it_is_grown_anew_after_a_while_and_forgotten_if_nobody_asks() -> None:
    growing = TreeCache(a_map("ab"))
    tree = growing.tree("a", ("b",), 1.5, 0)
    assert growing.tree("a", ("b",), 1.5, REFRESH_US) is not tree
    growing.expire(2 * REFRESH_US)
    assert len(growing) == 1
    growing.expire(3 * REFRESH_US)
    assert len(growing) == 0
