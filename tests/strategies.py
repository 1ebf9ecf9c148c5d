"""Random values, documents and predicates over domains small enough that they meet.

Names in TYPED always have values of one type, those in MIXED of any. The domains hold what engines
disagree on: neighbours of 2**53, ends of 64 bits, both zeros, texts whose order differs between
code points and UTF-16, wildcards, texts that are nearly numbers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Final, get_args

from hypothesis import strategies as st

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.like import normalise_pattern
from accord.core.predicates.tree import (
    And,
    Arithmetic,
    ArithmeticOp,
    Attribute,
    Compare,
    CompareOp,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    PathTest,
    XPath,
)

INTEGERS: Final = (
    0, 1, -1, 2, 3, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS: Final = (
    0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**63, -(2.0**63),
    5e-324, 1.5e308, -1.5e308,
)  # fmt: skip
STRINGS: Final = (
    "", "a", "ab", "aB", "a_b", "a%b", "a\\b", "a\nb", "é", "💧", "a💧b", "\uffff", "5", "true",
)  # fmt: skip
BOOLEANS: Final = (True, False)
TIMESTAMPS: Final = (
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    datetime(2026, 3, 29, 3, 30, tzinfo=timezone(timedelta(hours=2))),
    datetime(2026, 3, 29, 1, 30, 0, 1, UTC),
    datetime(1200, 2, 29, tzinfo=UTC),
)
DOMAINS: Final[dict[type, tuple[Value, ...]]] = {
    int: INTEGERS,
    float: FLOATS,
    str: STRINGS,
    bool: BOOLEANS,
    datetime: TIMESTAMPS,
}
TYPED: Final[dict[str, type]] = {
    "count": int,
    "limit": int,
    "level": float,
    "ratio": float,
    "label": str,
    "note": str,
    "is_set": bool,
    "seen": datetime,
}
MIXED: Final = ("x", "y", "an odd `name`")

TEXTS: Final = (
    "", "5", " 5\n", "7.5", "-.5", "5.", "1e1", "5e", "5E+", "1e-1", "1e999", "0e99999999999", "+5",
    "5d", "0x5", "NaN", "Infinity", "５", "- 5", "a", "a b", "💧", "9007199254740993",
)  # fmt: skip
PATHS: Final = ("/r", "/r/n", "//n", "/r/g/n", "/r/s/@k", "//@k", "/r/absent")
XPATHS: Final = (
    "count(//n) > 1",
    "/r/n[2] = 5",
    "contains(/r/s, 'a')",
    "sum(/r/g/n) >= 5",
    "string-length(/r) mod 2 = 1",
    "/r/s[@k = 'a'][2]",
)

_PIECES: Final = ("a", "b", "B", "%", "_", "\\%", "\\_", "\\\\", "\n", "💧", "(", "*", ".")
_COMPARE_OPS: Final[tuple[CompareOp, ...]] = get_args(CompareOp)
_ARITHMETIC_OPS: Final[tuple[ArithmeticOp, ...]] = get_args(ArithmeticOp)


def values(kind: type | None = None) -> st.SearchStrategy[Value]:
    if kind is not None:
        return st.sampled_from(DOMAINS[kind])
    return st.sampled_from(list(DOMAINS.values())).flatmap(st.sampled_from)


def attribute_maps() -> st.SearchStrategy[dict[str, Value]]:
    typed = {name: values(kind) for name, kind in TYPED.items()}
    return st.fixed_dictionaries({}, optional=typed | dict.fromkeys(MIXED, values()))


def documents() -> st.SearchStrategy[Document]:
    text = st.sampled_from(TEXTS)
    leaf = st.one_of(
        text.map("<n>{}</n>".format),
        st.tuples(text, text).map(lambda both: '<s k="{}">{}</s>'.format(*both)),
    )
    group = st.lists(leaf, max_size=2).map(lambda leaves: f"<g>{''.join(leaves)}</g>")
    return st.lists(leaf | group, max_size=4).map(
        lambda parts: Document(f"<r>{''.join(parts)}</r>".encode())
    )


def trees() -> st.SearchStrategy[Expr]:
    """Conditions as a parser may build them, not yet canonical."""
    return st.recursive(_leaves(), _branches, max_leaves=6)


def operands() -> st.SearchStrategy[Expr]:
    """Attributes, constants, and arithmetic on them."""
    attributes = st.sampled_from([*TYPED, *MIXED]).map(Attribute)
    return attributes | values().map(Literal) | st.recursive(_numbers(), _computed, max_leaves=4)


def patterns() -> st.SearchStrategy[str]:
    pieces = st.lists(st.sampled_from(_PIECES), max_size=5)
    return pieces.map(lambda some: normalise_pattern("".join(some), "\\"))


def _numbers() -> st.SearchStrategy[Expr]:
    names = [name for name, kind in TYPED.items() if kind in (int, float)]
    constants = st.sampled_from([*INTEGERS, *FLOATS]).map(Literal)
    return st.sampled_from([*names, *MIXED]).map(Attribute) | constants


def _computed(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    operation = st.builds(Arithmetic, st.sampled_from(_ARITHMETIC_OPS), parts, parts)
    return operation | parts.map(Negative)


def _leaves() -> st.SearchStrategy[Expr]:
    ops = st.sampled_from(_COMPARE_OPS)
    listed = st.lists(values(), min_size=1, max_size=14).map(tuple)
    return st.one_of(
        st.builds(Compare, ops, operands(), operands()),
        st.builds(Compare, ops, operands(), values().map(Literal)),
        st.builds(Compare, ops, _numbers(), _numbers()),
        st.builds(In, operands(), listed, st.booleans()),
        st.builds(Like, operands(), patterns(), st.booleans()),
        st.builds(IsNull, operands(), st.booleans()),
        st.sampled_from(["is_set", *MIXED]).map(Attribute),
        st.sampled_from([True, False, None]).map(Literal),
        path_tests(),
        st.sampled_from(XPATHS).map(XPath),
    )


def path_tests() -> st.SearchStrategy[Expr]:
    paths = st.sampled_from(PATHS)
    numbers = st.sampled_from([5.0, 0.0, -0.5, 10.0, 2.0**53])
    return st.one_of(
        paths.map(PathTest),
        st.builds(PathTest, paths, st.sampled_from(_COMPARE_OPS), numbers),
        st.builds(PathTest, paths, st.sampled_from(_COMPARE_OPS[:2]), st.sampled_from(TEXTS)),
    )


def _branches(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    items = st.lists(parts, min_size=1, max_size=3).map(tuple)
    ops = st.sampled_from(_COMPARE_OPS)
    return st.one_of(
        items.map(And),
        items.map(Or),
        parts.map(Not),
        st.builds(IsNull, parts, st.booleans()),
        st.builds(Compare, ops, parts, parts),
    )
