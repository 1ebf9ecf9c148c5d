"""What templates say of options that nobody could use."""

from __future__ import annotations

import pytest

from accord.core.channels.channels import SHIPPED, Channels
from accord.core.channels.template import number, one_of, problem_with_options, whole_number
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay


def problem(template: str, **options: str) -> tuple[str, str] | None:
    return problem_with_options(options, SHIPPED[template].options)


@pytest.mark.parametrize(
    ("template", "name", "text"),
    [
        ("routed", "datagrams", "true"),
        ("routed", "datagrams", "false"),
        ("single_source", "spanner", "1"),
        ("unreliable", "spanner", "1.5"),
        ("reliable", "slow_members", "wait"),
        ("reliable", "stall_timeout_ms", "86400000"),
        ("total_order", "slow_members", "drop"),
        ("total_order", "spanner", "2"),
        *((template, "persistent", "7d") for template in SHIPPED),
    ],
)
def test_what_templates_take(template: str, name: str, text: str) -> None:
    assert problem(template, **{name: text}) is None


@pytest.mark.parametrize(
    ("template", "name", "text", "expected"),
    [
        ("reliable", "slow_members", "maybe", "expected drop or wait, got 'maybe'"),
        ("reliable", "slow_members", "Wait", "expected drop or wait, got 'Wait'"),
        ("reliable", "stall_timeout_ms", "-5", "expected a whole number from 1 to 86,400,000"),
        ("total_order", "stall_timeout_ms", "0", "expected a whole number from 1 to 86,400,000"),
        ("total_order", "stall_timeout_ms", "abc", "expected a whole number"),
        ("total_order", "stall_timeout_ms", "²", "expected a whole number"),
        ("total_order", "stall_timeout_ms", "9" * 5_000, "expected a whole number"),
        ("single_source", "spanner", "0.5", "expected a number from 1 to 1,000, got '0.5'"),
        ("unreliable", "spanner", "nan", "expected a number"),
        ("unreliable", "spanner", "abc", "expected a number"),
        ("routed", "datagrams", "perhaps", "expected true or false, got 'perhaps'"),
        ("reliable", "laggards", "wait", "no such option, renamed to slow_members"),
        ("total_order", "patience_ms", "5", "no such option, renamed to stall_timeout_ms"),
        ("routed", "slow_members", "wait", "no such option, expected one of datagrams, persistent"),
        ("local", "spanner", "2", "no such option, expected one of persistent"),
        ("reliable", "slow_member", "wait", "no such option, did you mean slow_members?"),
        ("local", "persistent", "often", "expected true, or how far"),
    ],
)
def test_what_they_do_not(template: str, name: str, text: str, expected: str) -> None:
    found = problem(template, **{name: text})
    assert found is not None
    assert found[0] == name
    assert expected in found[1]
    assert len(found[1]) < 200


def test_checks() -> None:
    assert [whole_number(2, 3)(text) == "" for text in ("1", "2", "3", "4")] == [0, 1, 1, 0]
    assert [number(0.5, 1)(text) == "" for text in ("0.4", "0.5", "1e0", "1.1", "inf")] == [
        *(0, 1, 1, 0, 0)
    ]
    assert one_of("a", "b")("c") == "expected a or b"


def test_a_node_asks_those_that_it_has() -> None:
    channels = Channels(Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None))
    wrong = ChannelDefinition("x", template="reliable", options={"slow_members": "maybe"})
    assert channels.problem_with_options(wrong) == (
        "slow_members",
        "expected drop or wait, got 'maybe'",
    )
    elsewhere = ChannelDefinition("x", template="flooded", options={"slow_members": "maybe"})
    assert channels.problem_with_options(elsewhere) is None
