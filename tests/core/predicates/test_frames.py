"""Messages matched by their bytes: the extension, its twin, and naive evaluation agree."""

from __future__ import annotations

import gc
import weakref
from array import array
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import MIXED, TEXTS, TIMESTAMPS, TYPED, trees

from accord.core.model.values import Value
from accord.core.mqtt import event_mapping
from accord.core.mqtt.properties import Properties
from accord.core.predicates.frames import UNDECIDED, attributes
from accord.core.predicates.index import FrameMatches, Index
from accord.core.predicates.interpreted import Interpreted
from accord.core.predicates.predicate import Predicate, parse

ENGINES = pytest.mark.parametrize("is_twin", [False, True])
NEARLY = (
    *TEXTS, "true", " false\t", "\u00a05", "5\u3000", "\x1c7\x85", "9223372036854775808", "1" * 20,
    "-9223372036854775808", "0.1", "123456789.123456789", "1e308", "1e309", "4.9e-324", "+.5e-3",
    "“x”", "aB", "a_b", "1" * 65, *(moment.isoformat() for moment in TIMESTAMPS),
)  # fmt: skip
OTHERS = (
    b"\x01\x01", b"\x02\0\0\0\x07", b"\x23\0\x01", b"\x0b\x85\x01", b"\x03\0\x01t", b"\x09\0\0",
)  # fmt: skip


def user(name: str, text: str) -> bytes:
    sized = (len(part).to_bytes(2, "big") + part for part in (name.encode(), text.encode()))
    return b"\x26" + b"".join(sized)


def batch(blocks: list[bytes]) -> tuple[bytes, array[int]]:
    data, spans = b"-", array("I")
    for block in blocks:
        spans.extend((len(data), len(data) + len(block)))
        data += block + b"payload"
    return data, spans


def match(index: Index, blocks: list[bytes], limit: int | None = None) -> FrameMatches:
    return index.match_frames("c", *batch(blocks), limit=limit)


def make(is_twin: bool) -> Index:
    return Index(Interpreted()) if is_twin else Index()


@ENGINES
def test_each_message_has_its_set_and_equal_sets_are_one(is_twin: bool) -> None:
    index = make(is_twin)
    index.add("low", parse("h < 5"))
    index.add("urgent", parse("h < 3"), importance=9)
    blocks = [user("h", text) for text in ("1", "9", "4", "2", "x")] + [b""]
    found = match(index, blocks)
    assert [found.answers[number] for number in found.which] == [
        ("urgent", "low"), (), ("low",), ("urgent", "low"), (), (),
    ]  # fmt: skip
    assert len(found.answers) == 4
    assert found.undecided == 0
    assert found.work > 0
    other = index.match_frames("$sys", *batch(blocks))
    assert other.which.tolist() == [1] * 6
    assert other.answers == [(), ()]


@ENGINES
@pytest.mark.parametrize(
    "block",
    [
        user("metadata", "<r/>"),
        user("key", "a") + user("key", "b"),
        user("deadline-ms", "1") * 2,
        user("a", "5") * 257,
        b"\x26\0\x05a",
        b"\x26\0\x01a\0\x09",
        b"\x7f",
        b"\x02\0",
        b"\x0b\x80",
    ],
)
def test_what_the_edge_has_to_decide_is_complex(block: bytes, is_twin: bool) -> None:
    index = make(is_twin)
    index.add(1, parse("a = 5"))
    found = match(index, [user("a", "5"), block, user("a", "5")])
    assert found.which.tolist() == [1, UNDECIDED, 1]
    assert found.answers == [(), (1,)]
    assert found.undecided == 1


@ENGINES
def test_a_limit_is_for_each_message(is_twin: bool) -> None:
    index = make(is_twin)
    for number in range(50):
        index.add(number, parse(f"a + {number} > 0"))
    found = match(index, [b"", user("a", "1")] * 2, limit=20)
    assert found.undecided == 4
    assert match(index, [user("a", "1")] * 4, limit=1_000).undecided == 0


def test_reserved_names_are_no_attributes() -> None:
    for index in (make(is_twin=False), make(is_twin=True)):
        index.add("present", parse("\"key\" = 'a'"))
        index.add("absent", parse('"key" IS NULL'))
        found = match(index, [user("key", "a")])
        assert found.answers == [(), ("absent",)]


@ENGINES
def test_spans_must_lie_in_the_data(is_twin: bool) -> None:
    index = make(is_twin)
    index.add(1, parse("a = 5"))
    for spans in ([0, 9], [3, 2], [4_000_000_000, 4_000_000_001], [0], [0, 1, 2]):
        with pytest.raises(ValueError, match="beyond the data"):
            index.match_frames("c", b"12345", array("I", spans))


def test_an_index_holds_its_keys_as_long_as_they_are_registered() -> None:
    class Key:
        pass

    index, key = Index(), Key()
    alive = weakref.ref(key)
    index.add(key, parse("a = 5 AND b = 1 OR c = 2 AND d = 3"))
    assert match(index, [user("a", "5") + user("b", "1")]).answers == [(), (key,)]
    index.remove(key)
    del key
    gc.collect()
    assert alive() is None
    cyclic = Key()
    cyclic.index = Index()  # type: ignore[attr-defined]
    cyclic.index.add(cyclic, parse("a = 5"))  # type: ignore[attr-defined]
    alive = weakref.ref(cyclic)
    del cyclic
    gc.collect()
    assert alive() is None


PROPERTIES = st.lists(
    st.tuples(st.sampled_from([*TYPED, *MIXED, "key", "unknown"]), st.sampled_from(NEARLY)),
    max_size=8,
)


@given(PROPERTIES)
def test_attributes_are_those_that_the_edge_reads(properties: list[tuple[str, str]]) -> None:
    block = b"".join(user(*each) for each in properties)
    found = attributes(block)
    if found is not None:
        assert found == event_mapping.to_values(Properties(user=tuple(properties)))[0]
    else:
        assert [name for name, _ in properties].count("key") > 1


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    parts = [user(*each) for each in draw(PROPERTIES)]
    parts += draw(st.lists(st.sampled_from(OTHERS), max_size=2))
    block = bytearray(b"".join(draw(st.permutations(parts))))
    for place in draw(st.lists(st.integers(0, 200), max_size=2)) if draw(st.booleans()) else ():
        block[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(block)


@given(st.lists(trees().map(Predicate), max_size=40), st.lists(blocks(), min_size=1, max_size=5))
def test_bytes_match_what_their_values_match(
    predicates: list[Predicate], found: list[bytes]
) -> None:
    index, twin = Index(), Index(Interpreted())
    for key, predicate in enumerate(predicates):
        index.add(key, predicate)
        twin.add(key, predicate)
    try:
        events = [attributes(block) for block in found]
    except UnicodeDecodeError:
        return  # which the edge has refused before
    answer, other = match(index, found), match(twin, found)
    for number, values in enumerate(events):
        expected = {
            key
            for key, predicate in enumerate(predicates)
            if values is not None and predicate.evaluate(values) is True
        }
        for each in (answer, other):
            if each.which[number] == UNDECIDED:
                assert values is None or has_time(values)
            else:
                assert set(each.answers[each.which[number]]) == expected


def has_time(values: dict[str, Value]) -> bool:
    return any(
        isinstance(value, datetime) or (isinstance(value, str) and "-" in value)
        for value in values.values()
    )


def test_the_extension_is_used_where_it_was_built() -> None:
    try:
        from accord.core.native import _native  # noqa: F401, PLC0415
    except ImportError:
        pytest.skip("not built")
    assert type(Index()._engine).__name__ == "Compiled"
