"""Compiles registered predicates for matching: sheets for plain ones, an index for all others.

All expensive work happens here, once: parsing texts, sorting clauses into columns. The result is
mostly arrays, which workers map into memory instead of building anything. Each worker only has to
add the predicates that are not plain to an index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import AccordError, PredicateError
from accord.core.predicates.predicate import Predicate, parse, parse_xpath
from accord.core.predicates.tree import And, Attribute, Expr, PathTest, XPath, walk
from accord.pipeline.bulk.shapes import Family, sort_texts, trees_of
from accord.pipeline.bulk.sheets import Sheet
from accord.pipeline.bulk.sorting import Signature, signature_of, to_sheet

MAX_SHEETS: Final = 32
_WORTHWHILE: Final = 256  # minimum clauses in a sheet if an index is needed anyway

SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("channel", pa.string()),
        ("where", pa.string()),
        ("xpath", pa.string()),
        ("importance", pa.int64()),
    ]
)
Texts = Sequence[tuple[str, str]]  # where, xpath
ParseAll = Callable[[Texts], Iterable[Expr | PredicateError]]


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A predicate with its owner's key, for the channels that a filter selects."""

    key: str
    channel: str = "#"
    where: str = ""
    xpath: str = ""
    importance: int = 0


class RegistrationError(AccordError):
    """A predicate of a set is not acceptable; `key` identifies it."""

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        self.problem = problem
        super().__init__(f"predicate {key!r}: {problem}")


@dataclass(frozen=True, slots=True)
class Other:
    """A predicate for the index."""

    position: int
    channel: str
    importance: int
    tree: Expr


@dataclass(frozen=True)
class PredicateSet:
    """A set of predicates, ready for matching. `keys` are by position, the most important first.

    `names` are the attributes used by predicates in the index.
    """

    version: str
    keys: pa.Array
    sheets: tuple[Sheet, ...]
    others: tuple[Other, ...]
    names: frozenset[str]
    has_paths: bool

    def __len__(self) -> int:
        return len(self.keys)


def compile_set(registered: Iterable[Registered]) -> PredicateSet:
    """Compile a set; RegistrationError if one predicate is not acceptable."""
    rows = [*registered]
    columns = {name: [getattr(each, name) for each in rows] for name in SCHEMA.names}
    return compile_table(pa.table(columns, schema=SCHEMA))


def parse_here(texts: Texts) -> list[Expr | PredicateError]:
    """Return the trees of all `texts`, or the error of each."""
    return [_parse(where, xpath) for where, xpath in texts]


def compile_table(table: pa.Table, parse_all: ParseAll = parse_here) -> PredicateSet:
    """Compile the predicates of `table`, which has the columns of SCHEMA.

    With many texts that are not plain, `parse_all` can parse them on other machines.
    """
    table = _checked(table)
    order = np.argsort(-table["importance"].to_numpy(), kind="stable")
    table = table.take(order).combine_chunks()
    wheres, xpaths = table["where"].to_pylist(), table["xpath"].to_pylist()
    families, unread = sort_texts(wheres, skip=[bool(xpath) for xpath in xpaths])
    chosen, small = _choose(families, has_others=bool(unread))
    filters = table["channel"].combine_chunks().dictionary_encode()
    sheets = tuple(to_sheet(signature, members, filters) for signature, members in chosen.items())
    trees = [tree for family in small for tree in trees_of(family)]
    texts = [(wheres[place], xpaths[place]) for place in unread]
    for place, tree in zip(unread, parse_all(texts), strict=True):
        if isinstance(tree, PredicateError):
            raise RegistrationError(table["key"][place].as_py(), tree.summary)
        trees.append((place, tree))
    others = tuple(_others(trees, table))
    nodes = [node for each in others for node in walk(each.tree)]
    return PredicateSet(
        _digest(table),
        table["key"].combine_chunks(),
        sheets,
        others,
        frozenset(node.name for node in nodes if isinstance(node, Attribute)),
        any(isinstance(node, PathTest | XPath) for node in nodes),
    )


def _parse(where: str, xpath: str) -> Expr | PredicateError:
    try:
        if not xpath:
            return parse(where).tree
        path = parse_xpath(xpath).tree
        return Predicate(And((parse(where).tree, path))).tree if where.strip() else path
    except PredicateError as error:
        return error


def _checked(table: pa.Table) -> pa.Table:
    if missing := [name for name in SCHEMA.names if name not in table.column_names]:
        raise ValueError(f"expected a column {missing[0]!r}, got {', '.join(table.column_names)}")
    table = table.select(SCHEMA.names).cast(SCHEMA).combine_chunks()
    for name in SCHEMA.names:
        if table[name].null_count:
            raise ValueError(f"expected {name} to be given for each predicate, got null")
    for pattern in pc.unique(table["channel"]).to_pylist():
        if problem := problem_with_filter(pattern):
            place = pc.index(table["channel"], pattern).as_py()
            raise RegistrationError(table["key"][place].as_py(), problem)
    if len(pc.unique(table["key"])) < len(table):
        counts = pc.value_counts(table["key"])
        repeated = counts.filter(pc.greater(counts.field("counts"), 1))
        raise RegistrationError(repeated[0]["values"].as_py(), "registered more than once")
    return table


def _choose(
    families: Sequence[Family], *, has_others: bool
) -> tuple[dict[Signature, list[Family]], list[Family]]:
    """Choose families for sheets, by signature, and those left to the index."""
    by_signature: dict[Signature, list[Family]] = {}
    for family in families:
        by_signature.setdefault(signature_of(family), []).append(family)
    sizes = {
        signature: sum(len(member.places) for member in members)
        for signature, members in by_signature.items()
    }
    ranked = sorted(by_signature, key=lambda signature: -sizes[signature])
    least = _WORTHWHILE if has_others or len(ranked) > MAX_SHEETS else 1
    chosen = [signature for signature in ranked[:MAX_SHEETS] if sizes[signature] >= least]
    rest = [member for each in ranked if each not in chosen for member in by_signature[each]]
    return {signature: by_signature[signature] for signature in chosen}, rest


def _others(trees: Iterable[tuple[int, Expr]], table: pa.Table) -> Iterator[Other]:
    channels, importance = table["channel"], table["importance"]
    for place, tree in trees:
        yield Other(place, channels[place].as_py(), importance[place].as_py(), tree)


def _digest(table: pa.Table) -> str:
    """Digest of the predicates and their order, equal in every process."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.blake2b(sink.getvalue(), digest_size=16).hexdigest()
