"""Both engines and the tail answer random predicates as plain Python does.

`make test` tries 150 predicates, of which Spark a few: `test_spark_agrees` tries more in one job.
With ACCORD_EXAMPLES=hunt it is 1,000 others each time, of both.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession
from tests.pipeline.asking import World, made, pages
from tests.pipeline.journals import START_MS
from tests.strategies import DOMAINS, MIXED, TYPED, trees

from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import Expr
from accord.core.queries.messages import EventQuery
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.spark_engine import SparkEngine

IS_HUNT: Final = os.environ.get("ACCORD_EXAMPLES") == "hunt"
PREDICATES: Final = 1_000 if IS_HUNT else 150
KINDS: Final = {int: "integer", float: "float", str: "string", bool: "boolean"}
TEXTS: Final = ("", "a\nb", "it's", 'say "5"', "back\\slash", "5e", " 5", "NaN", "0x5", "💧")
EVENTS: Final = 160


def text_of(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def random_user(rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Attributes mostly of their own type, and of any other now and then."""
    found = []
    for name in (*TYPED, *MIXED):
        if rng.random() < 0.4:
            usual = TYPED.get(name)
            kind = usual if usual and rng.random() < 0.9 else rng.choice(list(DOMAINS))
            text = text_of(rng.choice(DOMAINS[kind]))
            found.append((name, rng.choice(TEXTS) if rng.random() < 0.1 else text))
    if rng.random() < 0.3:
        number = rng.choice((5, "7.5", "a", " 5 "))
        found.append(("metadata", f"<r><n>{number}</n><s k='a'>{rng.choice('ab')}</s></r>"))
    return tuple(found)


def declarations(rng: random.Random) -> list[dict[str, str]]:
    """As an operator changes them: none, some, others, some with another type."""
    usual = {name: KINDS.get(kind, "timestamp") for name, kind in TYPED.items()}
    kinds = [*KINDS.values(), "timestamp"]
    retyped = {name: rng.choice(kinds) for name in rng.sample(list(usual), 4)}
    return [
        {},
        {name: usual[name] for name in rng.sample(list(usual), 4)} | {MIXED[0]: "integer"},
        usual | dict.fromkeys(MIXED, "float"),
        usual | retyped | dict.fromkeys(MIXED, "string"),
    ]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Archived with different declarations, with a tail; the same in every run."""
    rng = random.Random(33)  # noqa: S311
    world = World(tmp_path_factory.mktemp("agree"))
    world.publish(
        [made(n, START_MS + n // 3, f"a/{n % 4}", random_user(rng)) for n in range(EVENTS)]
    )
    for part, declared in enumerate(declarations(rng), 1):
        world.follow(EVENTS * part // 5, declared)
    yield world
    world.close()


@pytest.fixture(scope="module")
def in_process(grown: World) -> QueryEngine:
    return grown.queries(DataFusionEngine())


@pytest.fixture(scope="module")
def on_spark(spark: SparkSession, grown: World) -> QueryEngine:
    return grown.queries(SparkEngine(spark, grown.tables.storage))


def check_answers(world: World, queries: QueryEngine, tree: Expr) -> None:
    ask = EventQuery(channel="#", where=str(Predicate(tree)))
    found = [event.offset for page in pages(queries, ask, rows=1_000) for event in page.events]
    assert found == [event.offset for event in world.expected(ask)], ask.where


slow = partial(
    settings,
    deadline=None,
    derandomize=not IS_HUNT,
    phases=[Phase.generate],  # a failure names its predicate, and each attempt takes a while
    suppress_health_check=list(HealthCheck),
)


@slow(max_examples=PREDICATES)
@given(trees())
def test_datafusion_and_tail_agree_with_plain_python(
    grown: World, in_process: QueryEngine, tree: Expr
) -> None:
    check_answers(grown, in_process, tree)


@slow(max_examples=PREDICATES if IS_HUNT else PREDICATES // 5)
@given(trees())
def test_spark_and_tail_agree_with_plain_python(
    grown: World, on_spark: QueryEngine, tree: Expr
) -> None:
    check_answers(grown, on_spark, tree)
