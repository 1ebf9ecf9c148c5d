from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.content import Content, ShapingError
from accord.shaping.rows import COLUMNS, CSV, JSON, LINES, sniff_rows
from accord.shaping.series import Decimation, choose_rows, decimate

WAVE = [round(10 * math.sin(n / 20), 3) for n in range(2_000)]
WAVE[777], WAVE[1_333] = 99.5, -42.125


def _rows(kind: str) -> bytes:
    if kind == JSON:
        return json.dumps(WAVE).encode()
    if kind == COLUMNS:
        return json.dumps({"sensor": "s1", "t": list(range(2_000)), "v": WAVE}).encode()
    if kind == LINES:
        return b"".join(b'{"t": %d, "v": %r}\n' % (n, v) for n, v in enumerate(WAVE))
    return b"time,value\r\n" + b"".join(b"%d,%r\r\n" % (n, v) for n, v in enumerate(WAVE))


def _values(kind: str, payload: bytes) -> list[float]:
    if kind == JSON:
        return list(json.loads(payload))
    if kind == COLUMNS:
        decoded = json.loads(payload)
        assert decoded["sensor"] == "s1"
        assert [WAVE[t] for t in decoded["t"]] == decoded["v"]
        return list(decoded["v"])
    lines = payload.decode().splitlines()
    if kind == LINES:
        return [json.loads(line)["v"] for line in lines]
    assert lines[0] == "time,value"
    return [float(line.split(",")[1]) for line in lines[1:]]


@pytest.mark.parametrize("kind", [JSON, COLUMNS, LINES, CSV])
@pytest.mark.parametrize("max_bytes", [8_000, 1_000, 200])
def test_first_last_lowest_and_highest_stay(kind: str, max_bytes: int) -> None:
    payload = _rows(kind)
    shaped = decimate(payload, max_bytes, sniff_rows(payload[:512]))
    assert 0.5 * max_bytes <= len(shaped) <= max_bytes
    values = _values(kind, shaped)
    assert (values[0], values[-1]) == (WAVE[0], WAVE[-1])
    assert (min(values), max(values)) == (-42.125, 99.5)


@pytest.mark.parametrize("kind", [JSON, COLUMNS, LINES, CSV])
def test_what_fits_is_left_alone(kind: str) -> None:
    payload = _rows(kind)
    assert decimate(payload, len(payload), kind) is payload
    assert decimate(payload, 0, kind) is payload


def test_two_rows_are_left_however_small_the_target() -> None:
    assert decimate(_rows(JSON), 3, JSON) == b"[0.0,%r]" % WAVE[-1]


def test_a_reading_keeps_all_its_digits() -> None:
    assert decimate(b"[1.00, 2e0, 3.000, 0, 9, 5.50]", 26, JSON) == b"[1.00,0,9,5.50]"


def test_every_column_counts() -> None:
    rows = [[n, 0, 0] for n in range(100)]
    rows[30][1], rows[60][2] = 5, -5
    shaped = json.loads(decimate(json.dumps(rows).encode(), 120, JSON))
    assert [30, 5, 0] in shaped
    assert [60, 0, -5] in shaped


def test_gaps_are_no_extremes() -> None:
    rows = [{"v": n % 7 if n % 3 else None} for n in range(100)]
    rows[50] = {"v": 70}
    shaped = json.loads(decimate(json.dumps(rows).encode(), 100, JSON))
    assert {"v": 70} in shaped


def test_rows_without_numbers_are_thinned_evenly() -> None:
    shaped = json.loads(decimate(json.dumps([f"r{n:03}" for n in range(101)]).encode(), 50, JSON))
    assert shaped == ["r000", "r020", "r040", "r060", "r080", "r100"]


def test_a_quoted_cell_may_have_line_ends() -> None:
    payload = b"n;text\n" + b"".join(b'%d;"first\nsecond"\n' % (n % 10) for n in range(100))
    shaped = decimate(payload, 100, CSV)
    assert shaped.startswith(b'n;text\n0;"first\nsecond"\n')
    assert shaped.count(b'"') % 2 == 0
    assert len(shaped) <= 100


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"[1,2,3,4,5,6,7", JSON),
        (b"[" * 100_000, JSON),
        (b'{"a": 1, "b": "' + b"x" * 100 + b'"}', COLUMNS),
        (b"[1, 2]" + b" " * 50, JSON),
        (b"{}\n{\n[1,2,3,4\n", LINES),
        (b'{"a": "\xff"}\n' * 9, LINES),
        (b"anything at all, " * 9, ""),
        (b'"' * 99, CSV),
    ],
)
def test_what_is_no_series_is_a_clear_error(payload: bytes, kind: str) -> None:
    with pytest.raises(ShapingError, match="a series"):
        decimate(payload, 10, kind)


@given(st.integers(2, 300), st.integers(0, 3), st.integers(0, 400), st.randoms())
def test_choice_keeps_ends_and_extremes_within_its_count(
    total: int, width: int, count: int, random: object
) -> None:
    draw = getattr(random, "randint")  # noqa: B009
    columns = [[float(draw(-5, 5)) for _ in range(total)] for _ in range(width)]
    chosen = choose_rows(total, columns, count)
    assert chosen == sorted(set(chosen))
    assert {0, total - 1} <= set(chosen) <= set(range(total))
    assert len(chosen) <= max(2, count)
    if count >= 2 + 2 * width:
        for column in columns:
            kept = [column[place] for place in chosen]
            assert (min(kept), max(kept)) == (min(column), max(column))


@given(st.binary(max_size=300), st.sampled_from([JSON, COLUMNS, LINES, CSV]), st.integers(1, 99))
def test_any_bytes_are_decimated_or_refused(payload: bytes, kind: str, max_bytes: int) -> None:
    try:
        shaped = decimate(payload, max_bytes, kind)
    except ShapingError:
        return
    assert len(shaped) <= len(payload)


@pytest.mark.parametrize(
    ("content_type", "payload", "is_accepted"),
    [
        ("application/json; charset=utf-8", b"[1, 2]", True),
        ("application/json", b'{"a":1}\n{"a":2}\n', True),
        ("text/csv", b"a", True),
        ("", b"a,b\n1,2\n", True),
        ("", b" \n[1", True),
        ("", b'{"a": [', True),
        ("", b"hello, world", False),
        ("", b"\x00\x01,\n", False),
        ("", b"", False),
        ("image/jpeg", b"\xff\xd8\xff", False),
    ],
)
def test_series_are_known_by_type_or_first_bytes(
    content_type: str, payload: bytes, is_accepted: bool
) -> None:
    assert Decimation().accepts(content_type, payload) is is_accepted


def test_all_but_the_payload_stays() -> None:
    content = Content(_rows(CSV), "text/csv", (("sensor", "s1"),))
    shaped = Decimation().shape(content, ShapingTarget("decimation", 1_000))
    assert len(shaped.payload) <= 1_000
    assert (shaped.content_type, shaped.properties) == (content.content_type, content.properties)
