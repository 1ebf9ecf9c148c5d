from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from tests.policy_strategies import ENTITIES, WHOS

from accord.core.model.errors import PolicyError
from accord.core.policy.entity import Entity
from accord.core.policy.policy import Policy
from accord.core.policy.selectors import parse_selectors


@pytest.mark.parametrize(("text", "meaning"), WHOS.items())
@given(ENTITIES)
def test_who(text: str, meaning: Callable[[Entity], bool], entity: Entity) -> None:
    who = parse_selectors(Policy(name="x", who=text)).who
    assert who is not None
    assert who.selects(entity) is meaning(entity)


def test_membership_is_never_unknown() -> None:
    who = parse_selectors(Policy(name="x", who="NOT (group = 'red' AND user = 'ann')")).who
    assert who is not None
    assert who.selects(Entity("c"))
    assert not who.selects(Entity("c", "", ("red",)))


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("client = 'a' AND user <> 'b'", ("client", frozenset("a"))),
        ("group IN ('a', 'b')", ("group", frozenset("ab"))),
        ("group NOT IN ('a', 'b')", None),
        ("client = 'a' OR user = 'b'", None),
        ("client = user", None),
        ("client = 3", None),
    ],
)
def test_names_that_are_required(text: str, required: tuple[str, frozenset[str]] | None) -> None:
    who = parse_selectors(Policy(name="x", who=text)).who
    assert who is not None
    assert who.required == required


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ("who", "clent = 'a'", "expected some of client, user, group, node, got clent"),
        ("who", "group = client", "expected group compared with texts"),
        ("who", "group > 'a'", "expected group compared with texts"),
        ("who", "(group = 'a') IS NULL", "expected group compared with texts"),
        ("who", "XPATH '/a'", "expected no XPATH condition"),
        ("who", "client = ", "the predicate ends too early"),
        ("when", "link_kbs < 5", "link_rtt_ms, memory_mb, queued_bytes, sent_kbps, got link_kbs"),
        ("when", "XPATH '/a'", "expected no XPATH condition"),
        ("when", "link_kbps <", "the predicate ends too early at character 12"),
        ("where", "a = \ud800", "a lone surrogate"),
        ("where", "a" * 16_385, "16385 characters, at most 16384 accepted"),
    ],
)
def test_mistakes_name_the_policy_and_the_field(field: str, text: str, problem: str) -> None:
    policy = Policy(name="Patrol", **{field: text})  # type: ignore[arg-type]
    with pytest.raises(PolicyError) as caught:
        parse_selectors(policy)
    assert caught.value.place == f'policy "Patrol", {field}'
    assert problem in caught.value.problem
    assert str(caught.value) == f"{caught.value.place}: {caught.value.problem}"


def test_what_is_always_true_is_no_condition() -> None:
    selectors = parse_selectors(Policy(name="x", who=" ", where="TRUE", when="1 = 1"))
    assert (selectors.who, selectors.where, selectors.when) == (None, None, None)
    assert selectors.conditions == 0
