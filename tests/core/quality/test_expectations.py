from __future__ import annotations

import pytest
from msgspec.structs import replace

from accord.core.quality.expectations import (
    MAX_ALTERNATIVES,
    TRANSITIONS,
    Expectation,
    ExpectationTable,
    Lifecycle,
    PropertyRequirement,
    score_expectation,
)
from accord.core.quality.properties import PropertyRegistry, QualityError

REGISTRY = PropertyRegistry()
X = Expectation(
    id="X",
    subscription="s",
    channel="c",
    requirements=(
        PropertyRequirement("rate", 5.0, 10.0),
        PropertyRequirement("latency", None, 50.0),
    ),
)


def test_what_is_required_is_the_worse_end() -> None:
    wanted = score_expectation(X, REGISTRY)
    assert wanted.names == ("latency", "rate")
    assert wanted.least == (-50.0, 5.0)
    assert wanted.most == (0.0, 10.0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": ""}, "id: expected 1 to 256 characters"),
        ({"id": "a\0b"}, "id: expected 1 to 256 characters, none of them null"),
        ({"subscription": "x" * 257}, "subscription: expected 1 to 256"),
        ({"channel": "a/#/b"}, "channel: expected '#' as the last level only"),
        ({"requirements": ()}, "expected 1 to 16 properties, got 0"),
        ({"utility": 0.0}, "utility: expected more than 0, up to 1000000000, got 0"),
        ({"utility": float("nan")}, "utility: expected"),
        ({"publishers": 17}, "publishers: expected 1 to 16, got 17"),
        (
            {"requirements": (PropertyRequirement("rate"), PropertyRequirement("rate"))},
            "rate: expected once",
        ),
        (
            {"requirements": (PropertyRequirement("rate", 9.0, 5.0),)},
            "expectation 'X', rate: expected lower before upper, got 9 and 5",
        ),
        (
            {"requirements": (PropertyRequirement("trust", "high", "low"),)},
            "trust: expected lower before upper, got 'high' and 'low'",
        ),
        (
            {"requirements": (PropertyRequirement("rate", "x"),)},
            "'X', rate: expected a number within",
        ),
    ],
)
def test_what_is_not_accepted(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        score_expectation(replace(X, **changes), REGISTRY)


@pytest.mark.parametrize("life", [Lifecycle.ACTIVE, Lifecycle.SUSPENDED])
@pytest.mark.parametrize("verb", ["update", "suspend", "resume", "revoke"])
def test_each_step_of_a_life_is_in_the_table(life: Lifecycle, verb: str) -> None:
    book = ExpectationTable(REGISTRY)
    book.register(X)
    if life is Lifecycle.SUSPENDED:
        book.suspend("X")
    step = getattr(book, verb)
    argument = X if verb == "update" else "X"
    if (life, verb) in TRANSITIONS:
        assert step(argument).lifecycle is TRANSITIONS[life, verb]
        assert ("X" in book) == (verb != "revoke")
    else:
        with pytest.raises(QualityError, match=f"can't {verb} what is {life.value}"):
            step(argument)
        assert book.get("X").lifecycle is life
    book.check_invariants()


def test_the_bounds_of_a_book() -> None:
    book = ExpectationTable(REGISTRY, limit=MAX_ALTERNATIVES + 1)
    for number in range(MAX_ALTERNATIVES):
        book.register(replace(X, id=f"X{number}"))
    with pytest.raises(QualityError, match="its subscription holds 16 already"):
        book.register(X)
    with pytest.raises(QualityError, match="registered already"):
        book.register(replace(X, id="X1"))
    book.register(replace(X, subscription="other"))
    with pytest.raises(QualityError, match="17 expectations are registered already"):
        book.register(replace(X, id="Y", subscription="third"))
    with pytest.raises(QualityError, match="subscription: expected 'other'"):
        book.update(X)
    with pytest.raises(QualityError, match="'Y': not registered"):
        book.revoke("Y")
    assert len(book.alternatives("s")) == MAX_ALTERNATIVES
    book.revoke("X")
    assert book.alternatives("other") == []
    book.check_invariants()


def test_an_update_that_is_not_accepted_changes_nothing() -> None:
    book = ExpectationTable(REGISTRY)
    book.register(X)
    with pytest.raises(QualityError):
        book.update(replace(X, utility=-1.0))
    assert book.get("X").expectation == X
    book.check_invariants()
