from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from accord.core.channels.trees.tree import OfficialTree
from accord.core.overlay.link_state import LinkStateMap

NODES = "abcdefgh"


def linked(*pairs: str) -> LinkStateMap:
    net = LinkStateMap()
    for pair in pairs:
        link(net, pair[0], pair[1])
    return net


def link(net: LinkStateMap, one: str, other: str, *, is_up: bool = True) -> None:
    net.set_link(one, other, 10, 0.0, is_up, 0.0)
    net.set_link(other, one, 10, 0.0, is_up, 0.0)


def test_it_is_that_of_the_first_node() -> None:
    tree = OfficialTree("d", linked("cb", "cd", "bd")).tree()
    assert tree.nodes[0] == "b"
    assert sorted(tree.nodes) == ["b", "c", "d"]


def test_a_node_on_its_own_is_a_tree() -> None:
    alone = OfficialTree("a", LinkStateMap())
    assert (alone.tree().nodes, alone.neighbours()) == (("a",), ())


def test_it_follows_the_map() -> None:
    net = linked("ab", "bc", "cd", "da")
    official = OfficialTree("c", net)
    assert official.tree().nodes[0] == "a"
    link(net, "b", "c", is_up=False)
    link(net, "d", "a", is_up=False)
    assert sorted(official.tree().nodes) == ["c", "d"]
    assert official.neighbours() == ("d",)


@given(st.integers(0, 10_000))
def test_told_along_it_everybody_hears_everything_once(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    net = linked(*(one + random.choice(NODES[:place]) for place, one in enumerate(NODES) if place))
    for _ in range(random.randrange(8)):
        link(net, *random.sample(NODES, 2))
    trees = {name: OfficialTree(name, net) for name in NODES}
    heard = dict.fromkeys(NODES, 0)
    telling = [(random.choice(NODES), "")]
    for name, origin in telling:
        heard[name] += 1
        telling += [(each, name) for each in trees[name].neighbours() if each != origin]
    assert set(heard.values()) == {1}
