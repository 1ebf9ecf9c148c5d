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
    remote = RemoteAdvertisements(admission)
    remote.add("b", SENSOR, "n", TRADES, 5)
    remote.add("a", SENSOR, "n", TRADES, 5)
    remote.add("a", "client", "n", TRADES, 1)
    remote.check_invariants()
    assert rates(admission) == {"b": 5, "a": 1}
    remote.set_rank("a", "x", (1, 1, True))
    remote.set_rank("b", "x", (1, 1, False))
    assert rates(admission) == {"a": 6}
    remote.add("a", SENSOR, "n", TRADES, 7)
    remote.set_rank("b", "x", (1, 2, True))  # `a` has not heard yet, or can't
    assert rates(admission) == {"b": 5, "a": 1}
    remote.set_rank("a", "x", (2, 1, True))  # another life
    assert rates(admission) == {"a": 8}
    remote.check_invariants()


def test_another_parent_counts_when_one_is_gone() -> None:
    admission = Admission("c", 1)
    remote = RemoteAdvertisements(admission)
    for node in "ab":
        remote.add(node, SENSOR, "n", TRADES, 5)
    remote.set_rank("a", "x", (1, 1, True))
    remote.on_node_gone("a")
    assert rates(admission) == {"b": 5}
    remote.add("a", SENSOR, "n", TRADES, 5)  # it is back
    assert rates(admission) == {"a": 5}
    remote.remove("a", SENSOR, "n")
    assert rates(admission) == {"b": 5}
    remote.remove("b", SENSOR, "n")
    remote.set_rank("a", "x", None)
    remote.check_invariants()
    assert rates(admission) == {}
    assert admission.poset.advertisements == 0


def test_a_child_without_a_name_leaves_nothing() -> None:
    remote = RemoteAdvertisements(Admission("c", 1))
    remote.add("b", publisher_of("", "sensor"), "n", TRADES, 5)
    remote.remove("b", publisher_of("", "sensor"), "n")
    remote.check_invariants()
