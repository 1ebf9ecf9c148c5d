"""Events that no node can have sent, and what becomes of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from accord.core.channels.members import Members
from accord.core.overlay.interests import Interest, InterestTable
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import DeliverySequence, Establish, TransitEvent
from accord.core.overlay.state_messages import StateDelta, StateRecord
from accord.core.overlay.status_snapshot import net_status
from accord.core.overlay.validation import DAMAGED, problem_with_event, problem_with_interest
from accord.core.predicates.predicate import parse

SANE = TransitEvent(
    "b", 1, 1, (1,), "uav", b"", qos=2, publisher="ä" * 32_767, importance=7, event=2**63 - 1,
    expiry_s=2**32 - 1, age_us=1, deadline_us=(2**32 - 1) * 1_000_000, trail=(("b", 1),),
)  # fmt: skip
INSANE: list[dict[str, Any]] = [
    {"publisher": "\0"},
    {"publisher": "x" * 65_536},
    {"publisher": "ä" * 32_768},
    {"source": "b\0"},
    {"child": "x" * 65_536},
    {"event": -(2**63)},
    {"event": 2**63},
    {"child_number": -1},
    {"number": -1},
    {"incarnation": 2**64 - 1},
    {"expiry_s": 2**32},
    {"expiry_s": -2},
    {"qos": 3},
    {"qos": -1},
    {"importance": 8},
    {"importance": -1},
    {"age_us": -1},
    {"age_us": 2**64 - 1},
    {"deadline_us": -1},
    {"deadline_us": 2**63},
    {"trail": (("b", 2**64 - 1),)},
    {"trail": (("b", 1),) * 4_097},
    {"sequences": (DeliverySequence("b", 1, 1),) * 4_097},
    {"routes": (1,) * 32_769},
    {"channel": "x" * 65_536},
]


def test_what_a_node_can_send() -> None:
    assert problem_with_event(SANE) is None
    assert problem_with_event(TransitEvent("b", 0, 0, (), "uav", b"")) is None


@pytest.mark.parametrize("changes", INSANE, ids=lambda each: str(each)[:40])
def test_what_no_node_can_send_is_neither_passed_on_nor_handed_over(
    changes: dict[str, Any],
) -> None:
    event = msgspec.structs.replace(SANE, **changes)
    assert problem_with_event(event)
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    overlay.link_up("b", 0)
    overlay.receive("b", Establish("b", 1, ("b", "a")), 0)
    overlay.receive("b", event, 0)
    assert not overlay.deliveries
    assert overlay.dropped == {DAMAGED: 1}
    overlay.receive("b", SANE, 0)
    assert len(overlay.deliveries) == 1


LONG = parse("a = 'stands for a longer one'")
NOT_UTF_8 = b"\x93\xa1\xff\xa0\xa0"


@pytest.mark.parametrize(
    "value",
    [
        NOT_UTF_8,
        *map(msgspec.msgpack.encode, (Interest("a/#/b"), Interest(""), Interest("a\0"))),
        *map(msgspec.msgpack.encode, (Interest("a/" * 33 + "a"), Interest("ä" * 520))),
        *map(
            msgspec.msgpack.encode, (Interest("a", "ä" * 8_193), Interest("a", xpath="a" * 16_385))
        ),
    ],
    ids=lambda value: str(value[:40]),
)
def test_needs_that_nobody_can_have_are_none(value: bytes) -> None:
    told: list[tuple[str, Interest | None]] = []
    overlay = Overlay(
        "a", 1, OverlayOptions(), lambda: 0.5, lambda _, key, need: told.append((key, need))
    )
    members = Members(overlay.store.watch)
    overlay.link_up("b", 0)
    sane = msgspec.msgpack.encode(Interest("uav"))
    facts = (StateRecord("need", "1", value, 1), StateRecord("need", "2", sane, 2))
    overlay.receive("b", StateDelta("b", 1, 0, 2, facts), 0)
    assert told == [("1", None), ("2", Interest("uav"))]
    assert members.of("uav") == ("b",)


@pytest.mark.parametrize(
    "pattern",
    ["a/" * 31 + "#", "a/" * 32 + "a", "a/" * 100 + "#", "ä" * 600, "ä" * 511 + "/bb", "ä" * 512],
    ids=lambda each: f"{len(each)}",
)
@pytest.mark.parametrize("characters", [8_000, 20_000])
def test_what_a_node_tells_of_long_needs_is_believed(pattern: str, characters: int) -> None:
    where = f"a = '{'ä' * characters}'"
    needs = InterestTable()
    needs.add(pattern, (where, ""), LONG)
    told = needs.changes(0)
    assert [problem_with_interest(need) for _, need in told if need is not None] == [None]


@pytest.mark.parametrize("kind", ["link", "node", "flow", "arrived", "channel", "listen"])
def test_facts_that_are_no_text_count_as_nothing(kind: str) -> None:
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    overlay.link_up("b", 0)
    overlay.receive("b", StateDelta("b", 1, 0, 1, (StateRecord(kind, "a", b"\x91\xa1\xff", 1),)), 0)
    overlay.advance(1)
    assert not net_status(overlay).flows
