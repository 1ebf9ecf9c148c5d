from __future__ import annotations

import pytest

from accord.core.channels.trees import tree_cache
from accord.core.channels.trees.tree import Tree, problem_with_tree
from accord.core.channels.trees.tree_cache import IDLE_US, KnownTrees

TREE = Tree(("a", "b", "c", "d"), (0, 1, 1))  # a - b, and b - c and d
DIGEST = TREE.digest()


def known() -> KnownTrees:
    trees = KnownTrees("b")
    trees.learn(TREE, DIGEST, 0)
    return trees


def test_next_to_and_beyond() -> None:
    trees = known()
    assert trees.neighbours(DIGEST, 0) == ("a", "c", "d")
    assert trees.beyond(DIGEST, "a") == ["a"]
    assert KnownTrees("a").neighbours(DIGEST, 0) is None
    other = KnownTrees("a")
    other.learn(TREE, DIGEST, 0)
    assert other.beyond(DIGEST, "b") == ["b", "c", "d"]
    assert other.next_hop(DIGEST, "d") == "b"
    assert trees.next_hop(DIGEST, "d") == "d"
    assert trees.next_hop(DIGEST, "nobody") == ""
    assert trees.next_hop(b"nothing", "d") == ""


def test_a_tree_is_attached_until_it_is_confirmed() -> None:
    trees = known()
    assert trees.to_attach("c", DIGEST, 0) == TREE
    trees.confirm("c", DIGEST, 1)
    assert trees.to_attach("c", DIGEST, 2) is None
    assert trees.to_attach("d", DIGEST, 2) == TREE
    trees.unconfirm("c", DIGEST)
    assert trees.to_attach("c", DIGEST, 3) == TREE


def test_a_neighbour_is_not_believed_to_know_what_was_not_used_for_long() -> None:
    trees = known()
    trees.confirm("c", DIGEST, 0)
    assert trees.to_attach("c", DIGEST, IDLE_US - 1) == TREE


def test_what_is_not_used_is_forgotten() -> None:
    trees = known()
    trees.confirm("c", DIGEST, 0)
    trees.expire(IDLE_US - 1)
    assert trees.neighbours(DIGEST, IDLE_US - 1) is not None
    trees.expire(2 * IDLE_US)
    assert len(trees) == 0
    trees.confirm("c", DIGEST, 2 * IDLE_US)  # of a tree nobody knows
    assert len(trees) == 0
    trees.check_invariants()


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (TREE, None),
        (Tree(("a",), ()), None),
        (Tree((), ()), "expected 1 to 4096 nodes, got 0"),
        (Tree(("a", "a"), (0,)), "expected each node once"),
        (Tree(("a", "b" * 257), (0,)), "expected names of nodes"),
        (Tree(("a", "b"), ()), "expected a parent for each node but the first"),
        (Tree(("a", "b"), (1,)), "expected parents before their children"),
        (Tree(("a", "b"), (-1,)), "expected parents before their children"),
    ],
)
def test_what_is_a_tree(tree: Tree, problem: str | None) -> None:
    assert problem_with_tree(tree) == problem


def test_large_trees_are_known_less_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_cache, "NODES", 10)
    trees = KnownTrees("b")
    digests = [bytes([number]) for number in range(4)]
    for digest in digests:
        trees.learn(TREE, digest, 0)
        trees.check_invariants()
    assert [trees.neighbours(digest, 0) is not None for digest in digests] == [
        False,
        False,
        True,
        True,
    ]
    large = Tree(tuple(f"n{number}" for number in range(20)), tuple(range(19)))
    trees.learn(large, b"large", 0)
    trees.check_invariants()
    assert trees.neighbours(b"large", 0) is not None
    trees.expire(IDLE_US)
    trees.check_invariants()
    assert len(trees) == 0
