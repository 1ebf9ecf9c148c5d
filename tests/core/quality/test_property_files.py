from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.properties import SHIPPED, Better, HopEffect, Property, QualityError
from accord.core.quality.property_files import parse_properties, render_properties

TEXT = """\
# How old what an event tells of may be
name = freshness
range = 0..inf
better = lower
unit = ms
over hops = add

  name=trust
levels = none < low < medium < high
better = higher
"""


def test_a_file_of_definitions() -> None:
    assert parse_properties(TEXT) == [
        Property(name="freshness", better=Better.LOWER, unit="ms", over_hops=HopEffect.ADD),
        Property(name="trust", better=Better.HIGHER, levels=("none", "low", "medium", "high")),
    ]
    assert parse_properties("") == []


def test_what_ships_is_rendered_and_parsed() -> None:
    assert parse_properties(render_properties(list(SHIPPED))) == list(SHIPPED)


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,20}", fullmatch=True)
BOUNDS = st.tuples(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15) | st.just(math.inf))


@st.composite
def properties(draw: st.DrawFn) -> Property:
    name, better = draw(NAMES), draw(st.sampled_from(Better))
    is_measured = draw(st.booleans())
    if draw(st.booleans()):
        levels = tuple(draw(st.lists(NAMES, min_size=2, max_size=5, unique=True)))
        return Property(name=name, better=better, levels=levels, is_measured=is_measured)
    lowest, highest = draw(BOUNDS.filter(lambda both: both[0] < both[1]))
    return Property(
        name=name,
        better=better,
        lowest=lowest,
        highest=highest,
        unit=draw(st.sampled_from(("", "ms", "events/s", "°C"))),
        over_hops=draw(st.sampled_from((HopEffect.KEEP, HopEffect.ADD, HopEffect.WORST))),
        is_measured=is_measured,
    )


@given(st.lists(properties(), unique_by=lambda each: each.name, max_size=4))
def test_rendered_and_parsed(found: list[Property]) -> None:
    assert parse_properties(render_properties(found)) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\nrubbish", "line 2: expected key = value, got 'rubbish'"),
        ("better = lower", "line 1: expected name = … first, got 'better'"),
        ("name = a\ncolour = red", "line 2: expected one of name, better, .* got 'colour'"),
        (
            "name = a\nbetter = up\nrange = 0..1",
            "line 2: better: expected higher or lower, got 'up'",
        ),
        ("name = a\nrange = 0..1", "line 1: 'a': expected better = higher or better = lower"),
        ("name = a\nbetter = lower", "line 1: 'a': expected either range or levels"),
        (
            "name = a\nbetter = lower\nrange = 0..1\nlevels = a < b",
            "line 1: 'a': expected either range or levels",
        ),
        ("name = a\nbetter = lower\nrange = 5", r"line 3: range: expected two numbers such as"),
        ("name = a\nbetter = lower\nrange = 5..1", "line 1: a: range: expected the lower number"),
        ("name = a\nbetter = lower\nlevels = one", "line 3: levels: expected such as none <"),
        ("name = a\nbetter = lower\nbetter = lower", "line 3: better: said in line 2 already"),
        (
            "name = a\nbetter = lower\nrange = 0..1\nname = a\nbetter = lower\nrange = 0..1",
            "line 4: name: a is defined above already",
        ),
        ("name = ä\nbetter = lower\nrange = 0..1", "line 1: a property's name: expected a letter"),
        ("name = a\nbetter = lower\nrange = 0..1\nmeasured = maybe", "line 4: measured: expected"),
        ("#" * 2**21, "the definitions: 2097152 characters, at most 1048576 accepted"),
    ],
)
def test_mistakes_name_their_line_and_what_was_expected(text: str, problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        parse_properties(text)
