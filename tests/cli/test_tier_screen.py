"""What `accord net` shows of parents and children."""

from __future__ import annotations

from msgspec.structs import replace

from accord.core.overlay.status import (
    ChildStatus,
    NetStatus,
    ParentStatus,
    TierStatus,
    TransitCounts,
)
from tests.cli.test_net import shown
from tests.fake_net import five_cities

PARENTS = (
    ParentStatus(name="a", is_linked=True, is_active=True, is_standby=False, latency_us=1_200),
    ParentStatus(name="b", is_linked=True, is_active=False, is_standby=True, waiting=3, lost=1),
    ParentStatus(name="c", is_linked=True, is_active=False, is_standby=False),
    ParentStatus(name="d", is_linked=False, is_active=False, is_standby=False),
)
NOTHING = NetStatus(
    node="x", nodes=(), links=(), channels=(), flows=(), arrivals=(), carried=TransitCounts()
)


def test_a_secondary_node_shows_its_parents() -> None:
    tier = TierStatus(parents=PARENTS, switches=2, waiting=5)
    text = shown(replace(NOTHING, tier=tier))
    assert text[0] == (
        "x secondary node, 3 of 4 parents linked · 2 changes of the active one · "
        "5 events not confirmed yet"
    )
    assert text[1:] == [
        "parent state delay waiting lost",
        "a active 1.2 ms – –",
        "b standby 0 ms 3 1",
        "c linked 0 ms – –",
        "d not linked – – –",
    ]


def test_parents_that_never_answered_count_too() -> None:
    text = shown(replace(NOTHING, tier=TierStatus(parents=(), configured=1)))
    assert text[0] == "x secondary node, 0 of 1 parent linked"


def test_a_backbone_node_shows_its_children() -> None:
    children = (
        ChildStatus(name="x1", is_linked=True, is_active=True, interests=2),
        ChildStatus(name="x2", is_linked=False, is_active=False, waiting=7, lost={"no room": 4}),
    )
    text = shown(replace(five_cities(), children=children))
    at = text.index("child role interests waiting lost")
    assert text[at + 1 : at + 3] == [
        "x1 active 2 – –",
        "x2 standby, not linked – 7 4 no room",
    ]


def test_a_child_with_a_namesake_is_told_of_first() -> None:
    problem = "another secondary node 'x1' is linked with 'b': one of the two must be renamed"
    child = ChildStatus(name="x1", is_linked=True, is_active=True, problem=problem)
    text = shown(replace(five_cities(), links_down=(), children=(child,)))
    assert text[1] == problem


def test_who_has_none_shows_none() -> None:
    assert not [line for line in shown(five_cities()) if line.startswith(("child", "parent"))]
