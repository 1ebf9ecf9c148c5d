"""Compiles registered predicates for matching: clause tables, and an index for what has no clauses.

All expensive work happens here, once: parsing texts, sorting clauses into columns. The result is
mostly arrays, which workers map into memory instead of building anything. Each worker only has to
add the predicates without clauses to an index.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from operator import not_
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import AccordError, PredicateError
from accord.core.predicates.predicate import Predicate, parse, parse_xpath
from accord.core.predicates.tree import And, Attribute, Expr, PathTest, XPath, walk
from accord.pipeline.bulk.clause_table_builder import build_table
from accord.pipeline.bulk.clause_tables import ClauseTable
from accord.pipeline.bulk.text_patterns import (
    ClauseColumns,
    PatternFamily,
    Signature,
    group_texts,
    to_columns,
    trees_of,
)

MAX_TABLES: Final = 32
_MIN_CLAUSES: Final = 256  # in a table, if an index is needed anyway

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
class IndexedPredicate:
    """A predicate for the index."""

    position: int
    channel: str
    importance: int
    tree: Expr


@dataclass(frozen=True)
class PredicateSet:
    """A set of predicates, ready for matching. `keys` are by position, the most important first.

    `has_alternatives` is set for predicates of several clauses, of which an event may match more
    than one.
    """

    version: str
    keys: pa.Array
    tables: tuple[ClauseTable, ...]
    indexed: tuple[IndexedPredicate, ...]
    has_alternatives: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def indexed_names(self) -> frozenset[str]:
        """The attributes used by predicates in the index."""
        return frozenset(node.name for node in self._nodes() if isinstance(node, Attribute))

    @cached_property
    def names(self) -> frozenset[str]:
        """The attributes used by all predicates."""
        columns = {name for table in self.tables for name, _ in (*table.equalities, *table.axes)}
        return self.indexed_names | columns

    @cached_property
    def has_paths(self) -> bool:
        """Whether predicates in the index look into metadata."""
        return any(isinstance(node, PathTest | XPath) for node in self._nodes())

    def _nodes(self) -> Iterator[Expr]:
        return (node for each in self.indexed for node in walk(each.tree))


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
    families, unread = group_texts(wheres, skip=[bool(xpath) for xpath in xpaths])
    tabular, small = _choose(families, has_others=bool(unread))
    filters = table["channel"].combine_chunks().dictionary_encode()
    by_signature: dict[Signature, list[ClauseColumns]] = {}
    has_alternatives = np.zeros(len(table), np.bool_)
    for family in tabular:
        has_alternatives[family.places] = len(family.clauses) > 1
        for clause in family.clauses:
            columns = to_columns(family, clause)
            by_signature.setdefault(clause.signature, []).append(columns)
    trees = [tree for family in small for tree in trees_of(family)]
    texts = [(wheres[place], xpaths[place]) for place in unread]
    for place, tree in zip(unread, parse_all(texts), strict=True):
        if isinstance(tree, PredicateError):
            raise RegistrationError(table["key"][place].as_py(), tree.summary)
        trees.append((place, tree))
    return PredicateSet(
        _digest(table),
        table["key"].combine_chunks(),
        tuple(build_table(signature, parts, filters) for signature, parts in by_signature.items()),
        tuple(_indexed(trees, table)),
        has_alternatives,
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
    families: Sequence[PatternFamily], *, has_others: bool
) -> tuple[list[PatternFamily], list[PatternFamily]]:
    """Divide families into those for the largest tables and those left to the index."""
    sizes: Counter[Signature] = Counter()
    for family in families:
        for clause in family.clauses:
            sizes[clause.signature] += len(family.places)
    least = _MIN_CLAUSES if has_others or len(sizes) > MAX_TABLES else 1
    chosen = {signature for signature, size in sizes.most_common(MAX_TABLES) if size >= least}
    is_chosen = [chosen.issuperset(each.signature for each in one.clauses) for one in families]
    others = compress(families, map(not_, is_chosen))
    return [*compress(families, is_chosen)], [*others]


def _indexed(trees: Iterable[tuple[int, Expr]], table: pa.Table) -> Iterator[IndexedPredicate]:
    channels, importance = table["channel"], table["importance"]
    for place, tree in trees:
        yield IndexedPredicate(place, channels[place].as_py(), importance[place].as_py(), tree)


def _digest(table: pa.Table) -> str:
    """Digest of the predicates and their order, equal in every process."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return hashlib.blake2b(sink.getvalue(), digest_size=16).hexdigest()
