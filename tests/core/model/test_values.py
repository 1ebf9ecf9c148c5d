from __future__ import annotations

from datetime import UTC, datetime

import pytest

from accord.core.model.values import Kind, Value, infer, kind_of, parse_timestamp, problem_with


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("420", 420),
        ("-7", -7),
        ("+7", 7),
        (" 42 ", 42),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("4.5", 4.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("2026-03-14T06:12:30Z", datetime(2026, 3, 14, 6, 12, 30, tzinfo=UTC)),
        ("2026-03-14T06:12:30+02:00", datetime(2026, 3, 14, 4, 12, 30, tzinfo=UTC)),
        ("2026-03-14", "2026-03-14"),
        ("2026-13-14T06:12:30Z", "2026-13-14T06:12:30Z"),
        ("UAV", "UAV"),
        ("", ""),
        ("  ", "  "),
        ("nan", "nan"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("٣", "٣"),
    ],
)
def test_undeclared_text_becomes_what_it_looks_like(text: str, value: Value) -> None:
    inferred = infer(text)
    assert (type(inferred), inferred) == (type(value), value)


def test_integers_and_floats_are_one_kind_and_booleans_are_another() -> None:
    assert kind_of(1) is kind_of(1.5) is Kind.NUMBER
    assert kind_of(True) is Kind.BOOLEAN


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "expected string, integer, float, boolean or timestamp, got NoneType"),
        (b"x", "expected string, integer, float, boolean or timestamp, got bytes"),
        (float("nan"), "expected a finite number, got nan"),
        (float("-inf"), "expected a finite number, got -inf"),
        (2**63, "expected an integer of 64 bits, got 9223372036854775808"),
        (datetime(2026, 1, 1), "expected a timestamp with its time zone, got one without"),
        ("a\ud800", "expected Unicode text, got a lone surrogate at character 2"),
    ],
)
def test_what_is_no_value_is_named(value: object, problem: str) -> None:
    assert problem_with(value) == problem


@pytest.mark.parametrize("value", ["", 0, -(2**63), 0.5, True, datetime(2026, 1, 1, tzinfo=UTC)])
def test_values_have_no_problem(value: Value) -> None:
    assert problem_with(value) is None


def test_a_time_without_offset_is_taken_as_utc_and_nonsense_as_none() -> None:
    assert parse_timestamp("2026-01-31T12:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse_timestamp("tomorrow") is None
    assert parse_timestamp("0001-01-01T00:00:00+23:00") is None
