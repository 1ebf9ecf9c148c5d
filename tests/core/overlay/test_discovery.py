from __future__ import annotations

import msgspec
import pytest

from accord.core.overlay.discovery import (
    ADDRESS_CHARACTERS,
    MAX_ADDRESSES,
    Discovery,
    DiscoveryOptions,
    StartDialling,
    StopDialling,
    encode_addresses,
)
from accord.core.overlay.link_state import LinkStateMap

S = 1_000_000
MS = 1_000


def connect(overlay_map: LinkStateMap, one: str, other: str, latency_ms: int = 10) -> None:
    for source, target in ((one, other), (other, one)):
        overlay_map.set_link(source, target, latency_ms * MS, 0.0, True, 0.0)


def cut(overlay_map: LinkStateMap, one: str, other: str) -> None:
    overlay_map.drop_link(one, other)
    overlay_map.drop_link(other, one)


def told(discovery: Discovery, *nodes: str) -> None:
    for node in nodes:
        discovery.on_change(node, "", encode_addresses((f"{node}:7400",)))


def started(max_links: int = 2, **times: int) -> tuple[Discovery, LinkStateMap]:
    overlay_map = LinkStateMap()
    return Discovery("a", overlay_map, DiscoveryOptions(max_links=max_links, **times)), (
        overlay_map
    )


def test_near_ones_are_dialled_until_there_are_links_enough() -> None:
    discovery, overlay_map = started(max_links=3)
    connect(overlay_map, "a", "b")
    connect(overlay_map, "b", "near", 5)
    connect(overlay_map, "b", "far", 50)
    connect(overlay_map, "near", "middle", 5)
    told(discovery, "a", "b", "near", "far", "middle")
    assert discovery.advance(0, ["b"]) == [
        StartDialling("near", "near:7400"),
        StartDialling("middle", "middle:7400"),
    ]
    assert discovery.advance(S, ["b"]) == [], "they are being dialled"
    for node in ("near", "middle"):
        connect(overlay_map, "a", node, 5)
    assert discovery.advance(2 * S, ["b", "near", "middle"]) == []
    discovery.check_invariants()


def test_who_is_on_the_same_lan_comes_first() -> None:
    discovery, overlay_map = started(max_links=2)
    connect(overlay_map, "a", "b", 1)
    connect(overlay_map, "b", "near", 1)
    connect(overlay_map, "b", "lan", 90)
    told(discovery, "near", "lan")
    discovery.on_beacon("lan", ("10.0.0.9:7400",), 0)
    discovery.on_beacon("a", ("10.0.0.1:7400",), 0)
    assert discovery.advance(0, ["b"]) == [StartDialling("lan", "10.0.0.9:7400")]


def test_beacons_find_the_first_neighbour_and_are_forgotten() -> None:
    discovery, _ = started()
    discovery.on_beacon("b", ("10.0.0.2:7400",), 0)
    discovery.on_beacon("c", ("10.0.0.3:7400",), 0)
    orders = discovery.advance(0, [])
    assert sorted(order.node for order in orders) == ["b", "c"]
    later, _ = started()
    later.on_beacon("b", ("10.0.0.2:7400",), 0)
    assert later.advance(11 * S, []) == []
    later.check_invariants()


def test_parts_that_were_separated_find_each_other_although_there_are_links_enough() -> None:
    discovery, overlay_map = started(max_links=1)
    connect(overlay_map, "a", "b")
    connect(overlay_map, "b", "c")
    connect(overlay_map, "x", "y")
    told(discovery, "b", "c")
    assert discovery.advance(0, ["b"]) == []
    told(discovery, "x", "y")
    (order,) = discovery.advance(S, ["b"])
    assert order.node in ("x", "y")
    assert discovery.advance(2 * S, ["b"]) == [], "one at a time"
    connect(overlay_map, "a", order.node)
    assert discovery.advance(3 * S, ["b", order.node]) == []


def test_who_does_not_answer_is_left_alone_longer_each_time() -> None:
    discovery, _ = started(backoff_us=10 * S)
    discovery.on_change("b", "", encode_addresses(("one:1", "other:2")))
    tried = []
    now_us = 0
    for rest_s in (10, 20, 40):
        (order,) = discovery.advance(now_us, [])
        tried.append(order.address)
        assert discovery.on_dial_failed("b", now_us) == [StopDialling("b", order.address)]
        assert discovery.on_dial_failed("b", now_us) == [], "once"
        assert discovery.advance(now_us + rest_s * S - 1, []) == []
        now_us += rest_s * S
        discovery.check_invariants()
    assert tried == ["one:1", "other:2", "one:1"]
    (order,) = discovery.advance(now_us, [])
    discovery.advance(now_us, ["b"])
    discovery.on_dial_failed("b", now_us)
    assert discovery.advance(now_us + 10 * S, []) == [order] or discovery.advance(
        now_us + 10 * S, []
    ), "a link that was there ends that"


def test_all_do_not_choose_the_same() -> None:
    chosen = []
    for number in range(20):
        overlay_map = LinkStateMap()
        name = f"n{number}"
        discovery = Discovery(name, overlay_map, DiscoveryOptions(max_links=2))
        connect(overlay_map, name, "hub")
        for other in range(20, 40):
            connect(overlay_map, "hub", f"n{other}")
            told(discovery, f"n{other}")
        (order,) = discovery.advance(0, ["hub"])
        chosen.append(order.node)
    assert len(dict.fromkeys(chosen)) > 8


def three_links() -> tuple[Discovery, LinkStateMap]:
    """`a` has chosen `far` and `near`, and `c` was there before: one more than it may have."""
    discovery, overlay_map = started(max_links=2, close_interval_us=60 * S)
    told(discovery, "near", "far")
    discovery.advance(0, [])
    connect(overlay_map, "a", "c", 10)
    connect(overlay_map, "a", "near", 5)
    connect(overlay_map, "a", "far", 80)
    return discovery, overlay_map


def test_too_many_links_the_farthest_goes_if_it_can_be_reached_otherwise() -> None:
    discovery, overlay_map = three_links()
    linked = ["c", "near", "far"]
    assert discovery.advance(60 * S, linked) == [], "nobody else has a link to them"
    connect(overlay_map, "c", "far", 20)
    assert discovery.advance(61 * S, linked) == [StopDialling("far", "far:7400")]
    cut(overlay_map, "a", "far")
    connect(overlay_map, "c", "near", 20)
    assert discovery.advance(62 * S, ["c", "near"]) == [], "and not again at once"
    discovery.check_invariants()


def test_what_was_not_chosen_here_is_never_given_up() -> None:
    discovery, overlay_map = started(max_links=1)
    for node in ("b", "c", "d"):
        connect(overlay_map, "a", node)
    connect(overlay_map, "b", "c")
    connect(overlay_map, "c", "d")
    told(discovery, "b", "c", "d")
    assert discovery.advance(600 * S, ["b", "c", "d"]) == []


def test_a_far_link_is_changed_for_somebody_much_nearer() -> None:
    discovery, overlay_map = started(max_links=2, close_interval_us=60 * S)
    told(discovery, "far")
    discovery.advance(0, ["b"])
    connect(overlay_map, "a", "b", 5)
    connect(overlay_map, "a", "far", 80)
    connect(overlay_map, "b", "far", 80)
    connect(overlay_map, "b", "middle", 40)
    told(discovery, "middle")
    assert discovery.advance(60 * S, ["b", "far"]) == [], "45 ms are not much less than 80"
    connect(overlay_map, "b", "near", 5)
    told(discovery, "near")
    assert discovery.advance(120 * S, ["b", "far"]) == [StopDialling("far", "far:7400")]
    cut(overlay_map, "a", "far")
    assert discovery.advance(121 * S, ["b"]) == [StartDialling("near", "near:7400")]


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode("x"),
        msgspec.msgpack.encode([""]), msgspec.msgpack.encode(["x" * (ADDRESS_CHARACTERS + 1)]),
        msgspec.msgpack.encode(["x:1"] * (MAX_ADDRESSES + 1)),
    ],
)  # fmt: skip
def test_nonsense_leads_nowhere(value: bytes) -> None:
    discovery, _ = started()
    discovery.on_change("b", "", value)
    assert discovery.advance(0, []) == []
    discovery.check_invariants()


def test_who_takes_back_where_it_listens_is_not_dialled() -> None:
    discovery, _ = started()
    told(discovery, "b")
    discovery.on_change("b", "", None)
    assert discovery.advance(0, []) == []
    assert encode_addresses(("x:1",) * 20) == encode_addresses(("x:1",) * MAX_ADDRESSES)
