"""Events that no node can have sent, and what becomes of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.sanity import DAMAGED, problem_with_event
from accord.core.overlay.signals import Carried, Establish

SANE = Carried(
    "b", 1, 1, (1,), "uav", b"", qos=2, publisher="ä" * 32_767, importance=7, event=2**63 - 1,
    expiry_s=2**32 - 1, age_us=1, deadline_us=(2**32 - 1) * 1_000_000, trail=(("b", 1),),
)  # fmt: skip
INSANE: list[dict[str, Any]] = [
    {"publisher": "\0"},
    {"publisher": "x" * 65_536},
    {"publisher": "ä" * 32_768},
    {"source": "b\0"},
    {"origin": "x" * 65_536},
    {"event": -(2**63)},
    {"event": 2**63},
    {"original": -1},
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
]


def test_what_a_node_can_send() -> None:
    assert problem_with_event(SANE) is None
    assert problem_with_event(Carried("b", 0, 0, (), "uav", b"")) is None


@pytest.mark.parametrize("changes", INSANE, ids=str)
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
    assert overlay.lost == {DAMAGED: 1}
    overlay.receive("b", SANE, 0)
    assert len(overlay.deliveries) == 1
