"""What is advertised at a secondary node counts once, by the parent that is the active one."""

from __future__ import annotations

from tests.core.admission.advertised import filter_of

from accord.core.admission.admission import Admission
from accord.core.admission.remote_advertisements import RemoteAdvertisements, publisher_of

TRADES = filter_of("price > 0")
SENSOR = publisher_of("x", "sensor")


def rates(admission: Admission) -> dict[str, float]:
    found = admission.poset.intersecting_by_node(TRADES)
    return {node: sums.rate / 1_000 for node, sums in found.items()}


def test_the_latest_active_parent_counts() -> None:
    admission = Admission("c", 1)
    elsewhere = RemoteAdvertisements(admission)
    elsewhere.add("b", SENSOR, "n", TRADES, 5)
    elsewhere.add("a", SENSOR, "n", TRADES, 5)
    elsewhere.add("a", "client", "n", TRADES, 1)
    elsewhere.check_invariants()
    assert rates(admission) == {"b": 5, "a": 1}
    elsewhere.set_rank("a", "x", (1, 1, True))
    elsewhere.set_rank("b", "x", (1, 1, False))
    assert rates(admission) == {"a": 6}
    elsewhere.add("a", SENSOR, "n", TRADES, 7)
    elsewhere.set_rank("b", "x", (1, 2, True))  # `a` has not heard yet, or can't
    assert rates(admission) == {"b": 5, "a": 1}
    elsewhere.set_rank("a", "x", (2, 1, True))  # another life
    assert rates(admission) == {"a": 8}
    elsewhere.check_invariants()


def test_another_parent_counts_when_one_is_gone() -> None:
    admission = Admission("c", 1)
    elsewhere = RemoteAdvertisements(admission)
    for node in "ab":
        elsewhere.add(node, SENSOR, "n", TRADES, 5)
    elsewhere.set_rank("a", "x", (1, 1, True))
    elsewhere.on_node_gone("a")
    assert rates(admission) == {"b": 5}
    elsewhere.add("a", SENSOR, "n", TRADES, 5)  # it is back
    assert rates(admission) == {"a": 5}
    elsewhere.remove("a", SENSOR, "n")
    assert rates(admission) == {"b": 5}
    elsewhere.remove("b", SENSOR, "n")
    elsewhere.set_rank("a", "x", None)
    elsewhere.check_invariants()
    assert rates(admission) == {}
    assert admission.poset.advertisements == 0


def test_a_child_without_a_name_leaves_nothing() -> None:
    elsewhere = RemoteAdvertisements(Admission("c", 1))
    elsewhere.add("b", publisher_of("", "sensor"), "n", TRADES, 5)
    elsewhere.remove("b", publisher_of("", "sensor"), "n")
    elsewhere.check_invariants()
