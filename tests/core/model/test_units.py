from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.units import BANDWIDTHS_BPS, DURATIONS_MS, SIZES, parse, render


@pytest.mark.parametrize(
    ("text", "bandwidth_bps"),
    [
        ("800 kbit/s", 800_000),
        ("2Mbit/s", 2_000_000),
        (" 1.5 Mbit/s ", 1_500_000),
        ("9600 bit/s", 9_600),
        ("0.0001 kbit/s", None),
        ("2 Mbps", None),
        ("2 MBIT/S", None),
        ("800", None),
        ("-1 kbit/s", None),
        ("², kbit/s", None),
        ("1e3 bit/s", None),
        ("", None),
    ],
)
def test_bandwidths(text: str, bandwidth_bps: int | None) -> None:
    assert parse(text, BANDWIDTHS_BPS) == bandwidth_bps


@given(st.integers(0, 10**12), st.sampled_from([BANDWIDTHS_BPS, DURATIONS_MS, SIZES]))
def test_what_is_written_is_read(value: int, units: dict[str, int]) -> None:
    assert parse(render(value, units), units) == value


def test_the_shortest_unit_is_chosen() -> None:
    assert render(300_000, BANDWIDTHS_BPS) == "300 kbit/s"
    assert render(90_000, DURATIONS_MS) == "90 s"
    assert render(120_000, DURATIONS_MS) == "2 min"
    assert render(0, DURATIONS_MS) == "0 ms"
