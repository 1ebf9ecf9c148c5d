from __future__ import annotations

import sys
from collections.abc import Hashable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import attribute_maps, documents, trees

from accord.core.model.channels import filter_selects
from accord.core.model.document import Document
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.index import Index
from accord.core.predicates.interpreted import Interpreted
from accord.core.predicates.predicate import EVERYTHING, Predicate, parse, parse_xpath

FILTERS = st.sampled_from(["#", "uav/#", "uav/+", "uav/imagery", "+/imagery", "$sys/#"])
CHANNELS = st.sampled_from(["uav", "uav/imagery", "uav/tasking", "grid/imagery", "$sys/imagery"])


def engines() -> list[Index]:
    """The fastest there is, and its twin in Python."""
    return [Index(), Index(Interpreted())]


def test_an_event_finds_the_predicates_it_matches() -> None:
    index = Index()
    index.add("high", parse("altitude_m > 300"), channel="uav/#")
    index.add("low", parse("altitude_m <= 300"), channel="uav/#")
    index.add("all", EVERYTHING)
    index.add("grid", EVERYTHING, channel="grid/+")
    event = Event(channel="uav/imagery", attributes={"altitude_m": 420})
    assert sorted(map(str, index.match(event).keys)) == ["all", "high"]
    index.remove("high")
    assert index.match(event).keys == ["all"]


def test_a_predicate_with_alternatives_is_found_once() -> None:
    index = Index()
    index.add("either", parse("a = 1 AND c = 1 OR b = 2 AND d = 2"))
    both: dict[str, Value] = {"a": 1, "b": 2, "c": 1, "d": 2}
    assert index.match_values("c", both).keys == ["either"]


def test_repeated_elements_match_if_any_does() -> None:
    index = Index()
    for number in range(100):
        index.add(number, parse_xpath(f"/r/n = '{number}'"))
        index.add(("range", number), parse_xpath(f"/r/n > {number} and /r/n < {number + 1}"))
    document = Document(b"<r><n>7</n><n>42</n><n>7</n></r>")
    found = index.match_values("c", {}, document).keys
    assert sorted(key for key in found if isinstance(key, int)) == [7, 42]
    # One node above and another one below are enough.
    assert sorted(key[1] for key in found if isinstance(key, tuple)) == list(range(7, 42))


def test_the_important_ones_are_answered_first_and_a_limit_says_where_it_cut() -> None:
    index = Index()
    for number in range(300):
        index.add(number, parse(f"a + {number} > 0"), importance=number % 3)
    full = index.match_values("c", {"a": 1})
    assert [int(str(key)) % 3 for key in full.keys] == [2] * 100 + [1] * 100 + [0] * 100
    assert full.cut_at is None
    cut = index.match_values("c", {"a": 1}, limit=150)
    assert cut.cut_at == 1
    assert cut.keys[:100] == full.keys[:100]
    assert len(cut.keys) < 200
    assert cut.work < full.work


def test_keys_are_registered_once() -> None:
    index = Index()
    index.add("a", EVERYTHING)
    assert "a" in index
    with pytest.raises(ValueError, match="'a' is registered already"):
        index.add("a", EVERYTHING)
    with pytest.raises(ValueError, match="expected '#' as the last level only"):
        index.add("b", EVERYTHING, channel="#/b")
    with pytest.raises(KeyError):
        index.remove("b")
    assert len(index) == 1


def test_an_emptied_index_keeps_nothing() -> None:
    index = Index()
    texts = ["a = {n}", "a > {n} AND b < {n}", "x{n} > 1", "s LIKE 'p{n}%'", "a = {n} OR b = {n}"]
    for number in range(1_000):
        index.add(number, parse(texts[number % 5].format(n=number)), channel=f"c/{number % 7}")
    for number in range(1_000):
        index.remove(number)
    assert len(index) == 0
    assert index.match_values("c/1", {"a": 5, "b": 5}).work == 0


def naive(
    registered: dict[int, tuple[Predicate, str]],
    channel: str,
    values: dict[str, Value],
    document: Document | None,
) -> list[int]:
    return [
        key
        for key, (predicate, pattern) in registered.items()
        if filter_selects(pattern, channel) and predicate.evaluate(values, document) is True
    ]


@given(
    st.lists(st.tuples(trees().map(Predicate), FILTERS, st.integers(0, 2)), max_size=20),
    st.lists(
        st.tuples(CHANNELS, attribute_maps(), st.none() | documents()), min_size=1, max_size=3
    ),
    st.data(),
)
def test_the_index_equals_naive_evaluation(
    predicates: list[tuple[Predicate, str, int]],
    events: list[tuple[str, dict[str, Value], Document | None]],
    data: st.DataObject,
) -> None:
    keys = range(len(predicates))
    gone = data.draw(st.sets(st.sampled_from(keys))) if predicates else set()
    for index in engines():
        registered = {}
        for key, (predicate, pattern, importance) in enumerate(predicates):
            index.add(key, predicate, channel=pattern, importance=importance)
            registered[key] = (predicate, pattern)
        for key in gone:
            index.remove(key)
            del registered[key]
        for channel, values, document in events:
            found = index.match_values(channel, values, document).keys
            assert sorted(found) == naive(registered, channel, values, document)  # type: ignore[type-var]


NUMBERS = st.sampled_from([0, 1, 2, 2.5, 3, 7])
ATOMS = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from("abcdef"), st.sampled_from("<>="), NUMBERS),
    st.builds("{} >= {}".format, st.sampled_from("abcdef"), NUMBERS),
    st.builds("{} <> {}".format, st.sampled_from("abcdef"), NUMBERS),
    st.builds("{} = '{}'".format, st.sampled_from("st"), st.sampled_from("xyz")),
    st.builds("{} LIKE '{}%'".format, st.sampled_from("st"), st.sampled_from("xyz")),
    st.builds("{} IS NULL".format, st.sampled_from("abst")),
    st.builds("n{} > 0".format, st.integers(0, 60)),
)
TEXTS = st.lists(ATOMS, min_size=1, max_size=4).map(" AND ".join)


@settings(max_examples=25)
@given(st.lists(TEXTS, min_size=200, max_size=400), st.data())
def test_divided_partitions_and_grids_equal_naive_evaluation(
    texts: list[str], data: st.DataObject
) -> None:
    """Enough predicates that they are divided, cut into cells, removed and added again."""
    registered = {key: (parse(text), "#") for key, text in enumerate(texts)}
    gone = data.draw(st.sets(st.sampled_from(range(len(texts))), max_size=150))
    indexes = engines()
    for index in indexes:
        for key, (predicate, _) in registered.items():
            index.add(key, predicate)
        for key in gone:
            index.remove(key)
        for key in [key for key in gone if key % 2]:
            index.add(key, registered[key][0])
    kept = {key: entry for key, entry in registered.items() if key not in gone or key % 2}
    values: st.SearchStrategy[Value] = st.one_of(
        NUMBERS, st.sampled_from(["", "x", "xy", "z"]), st.booleans()
    )
    names = [*"abcdefst", *(f"n{number}" for number in range(60))]
    for _ in range(5):
        event: dict[str, Value] = data.draw(
            st.dictionaries(st.sampled_from(names), values, max_size=12)
        )
        for index in indexes:
            found: list[Hashable] = index.match_values("c", event).keys
            assert sorted(found) == naive(kept, "c", event, None)  # type: ignore[type-var]


def test_sorted_insertion_is_no_worse_than_any_other() -> None:
    index = Index()
    for number in range(3_000):
        index.add(number, parse(f"h > {number}"))
    answer = index.match_values("c", {"h": 2_000.5})
    assert len(answer.keys) == 2_001
    assert answer.work < 600


def test_an_accepted_condition_that_nothing_satisfies_is_no_harm() -> None:
    index = Index()
    most = int(sys.float_info.max)
    index.add("most", parse_xpath(f"/a > {most}"))
    assert index.match_values("c", {}, Document(b"<a>5</a>")).keys == []


def test_a_batch_is_answered_event_by_event() -> None:
    index = Index()
    index.add("high", parse("h > 5"))
    events = [Event(channel="c", attributes={"h": height}) for height in (1, 9, 7)]
    assert [answer.keys for answer in index.match_all(events)] == [[], ["high"], ["high"]]


OPERATORS = ["<", "<=", ">", ">=", "=", "<>"]


def many(random: Random) -> str:
    numbers = [0, 1, 2.5, 7, 2**53 - 1, 2**53, 2**53 + 1, 2**62 + 1, -(2**53) - 1, random.random()]
    choices = [
        f"{random.choice('abc')} {random.choice(OPERATORS)} {random.choice(numbers)}",
        f"s LIKE '{random.choice(['x', 'xy', 'y', ''])}%'",
        f"XPATH '/r/n {random.choice(['<', '>', '='])} {random.randrange(9)}'",
        f"XPATH '/r/@k = \"{random.choice('pq')}\"'",
        f"n{random.randrange(80)} IS NOT NULL",
    ]
    return " AND ".join(random.sample(choices, random.randint(1, 3)))


@pytest.mark.parametrize("engine", [0, 1])
@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_that_come_and_go_equal_naive_evaluation(seed: int, engine: int) -> None:
    """Large enough for every size at which cells are cut anew."""
    random = Random(seed)  # noqa: S311
    pool = [parse(many(random)) for _ in range(400)]
    index = engines()[engine]
    registered: dict[int, tuple[Predicate, str]] = {}
    for key in range(6_000):
        registered[key] = (random.choice(pool), "#")
        index.add(key, registered[key][0])
    for key in random.sample(range(6_000), 2_500):
        index.remove(key)
        del registered[key]
    numbers: list[Value] = [0, 1, 3.5, 2**53, 2**53 + 1, 2**62, -(2**53) - 1, 0.5, True, "x"]
    for _ in range(12):
        values: dict[str, Value] = {name: random.choice(numbers) for name in "abc"}
        values["s"] = random.choice(["", "x", "xyz", "yx"])
        values[f"n{random.randrange(80)}"] = 1
        nodes = "".join(f"<n>{random.randrange(9)}</n>" for _ in range(random.randrange(3)))
        document = random.choice([None, Document(f'<r k="p">{nodes}</r>'.encode())])
        answer = index.match_values("c", values, document)
        assert sorted(answer.keys) == naive(registered, "c", values, document)  # type: ignore[type-var]
        limit = random.randrange(answer.work + 1)
        cut = index.match_values("c", values, document, limit=limit)
        assert cut.keys == answer.keys[: len(cut.keys)]
        assert (cut.cut_at is None) is (answer.work <= limit)


@pytest.mark.parametrize("engine", [0, 1])
def test_long_texts_are_charged_for_and_a_limit_holds_for_them(engine: int) -> None:
    index = engines()[engine]
    pattern = "%" + "a_" * 25 + "b%"
    for number in range(100):
        index.add(number, parse(f"s LIKE '{pattern}' AND n = {number % 2}"))
    short = index.match_values("c", {"s": "a" * 60, "n": 1})
    assert short.work < 2_000
    answer = index.match_values("c", {"s": "a" * 60_000, "n": 1}, limit=100_000)
    assert answer.cut_at == 0
    assert answer.work < 150_000


@pytest.mark.parametrize("engine", [0, 1])
def test_texts_are_compared_by_code_point_and_large_integers_exactly(engine: int) -> None:
    index = engines()[engine]
    index.add("after", parse("s > '\uffff'"))
    index.add("large", parse(f"n > {2**62 + 1}"))
    index.add("next", parse(f"n = {2**62 + 2}"))
    assert index.match_values("c", {"s": "💧", "n": 2**62 + 1}).keys == ["after"]
    assert set(index.match_values("c", {"s": "a", "n": 2**62 + 2}).keys) == {"large", "next"}
    assert index.match_values("c", {"n": 2.0**62}).keys == []
