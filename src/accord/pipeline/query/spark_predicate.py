"""Predicates as Spark columns, with the meaning that `core.predicates.evaluate` gives them.

`to_column(parse("altitude > 300"), columns)` is a boolean column over the columns that
`attributes` describes: true, false, or null for unknown. It never fails on a row, and depends
neither on the session's time zone nor on its ANSI mode.

An attribute's value is in one of its columns or in the map. Where the columns are known to tell
the whole, the map is not read, and Parquet can prune by the condition.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.predicates.like import regex_parts, split_prefix
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.tree import (
    And,
    Arithmetic,
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
from accord.core.predicates.xpath import XPathEngine, compile_xpath
from accord.pipeline.query.spark_operands import (
    Operand,
    all_of,
    any_of,
    calculate,
    compare,
    constant,
    finite,
    is_in,
    is_unknown,
    test,
    to_double,
    truth,
)
from accord.pipeline.tables import ARROW, ATTRIBUTES, METADATA, PATHS, Columns, by_attribute

# `core.predicates.xpath.xpath_number` as a Java regex; an exponent without digits is not accepted.
_XPATH_NUMBER: Final = (
    r"\A[ \t\r\n]*-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]*)?[ \t\r\n]*\z"
)
_NO_EXPONENT: Final = r"[eE][+-]?[ \t\r\n]*\z"


def to_column(
    predicate: Predicate | Expr, columns: Columns = (), complete: Collection[str] = ()
) -> Column:
    """Return a column that is true where `predicate` is.

    `columns` are those of attributes in the table, with all values of the `complete` attributes.
    """
    tree = predicate.tree if isinstance(predicate, Predicate) else predicate
    return _Compiler(columns, complete).condition(tree)


class _Compiler:
    def __init__(self, columns: Columns, complete: Collection[str]) -> None:
        self._columns = by_attribute(columns)
        self._complete = complete

    def condition(self, node: Expr) -> Column:
        match node:
            case Literal() | Attribute() | Negative() | Arithmetic():
                return self._operand(node).columns.get("boolean", truth(None))
            case Compare(op, left, right):
                return compare(op, self._operand(left), self._operand(right))
            case In(operand, values):
                return is_in(self._operand(operand), values, is_negated=node.is_negated)
            case Like(operand, pattern):
                is_like = _like(self._operand(operand), pattern)
                return ~is_like if node.is_negated else is_like
            case IsNull(operand):
                is_null = is_unknown(self._operand(operand))
                return ~is_null if node.is_negated else is_null
            case And(items):
                return all_of([self.condition(item) for item in items])
            case Or(items):
                return any_of([self.condition(item) for item in items])
            case Not(item):
                return ~self.condition(item)
            case PathTest():
                return _path_test(node)
            case XPath():
                return _xpath(node)
        raise AssertionError(f"no column for {node!r}")

    def _operand(self, node: Expr) -> Operand:
        match node:
            case Literal(value):
                return constant(value)
            case Attribute(name):
                return self._attribute(name)
            case Negative() | Arithmetic():
                return finite(self._number(node))
        return Operand({"boolean": self.condition(node)})

    def _number(self, node: Expr) -> Column:
        match node:
            case Negative(operand):
                return calculate("-", F.lit(0.0), self._number(operand))
            case Arithmetic(op, left, right):
                return calculate(op, self._number(left), self._number(right))
        return to_double(self._operand(node))

    def _attribute(self, name: str) -> Operand:
        own = {each.kind: F.col(quoted(each.name)) for each in self._columns.get(name, ())}
        if name in self._complete:
            return Operand(own)
        value = F.col(ATTRIBUTES)[name]
        return Operand(
            {
                kind: F.coalesce(own[kind], value[kind]) if kind in own else value[kind]
                for kind in ARROW
            }
        )


def quoted(name: str) -> str:
    """The name of a column, whatever its characters."""
    return "`{}`".format(name.replace("`", "``"))


def _like(operand: Operand, pattern: str) -> Column:
    text = operand.columns.get("string")
    if text is None:
        return truth(None)
    prefix, rest = split_prefix(pattern)
    return text.startswith(prefix) if rest == "%" else text.rlike(_like_regex(pattern))


def _like_regex(pattern: str) -> str:
    """LIKE as a regex that does not backtrack.

    Spark's own LIKE tries every position for every part, which a hostile pattern exploits. Atomic
    groups commit to the first position where a part fits, as `core.predicates.like` does.
    """
    head, *others = (regex for regex, _ in regex_parts(pattern))
    if not others:
        return rf"(?s)\A{head}\z"
    *middle, tail = others
    return rf"(?s)\A{head}{''.join(f'(?>.*?{part})' for part in middle)}.*{tail}\z"


def _path_test(node: PathTest) -> Column:
    """Test a path; `F.exists` is null for a missing path, which counts as false in a document."""
    op, value = node.op, node.value
    found = F.col(PATHS)[node.path]
    if op is None or value is None:
        is_satisfied = found.isNotNull()
    else:
        satisfying = F.exists(found, lambda text: _path_satisfies(op, text, value))
        is_satisfied = F.coalesce(satisfying, F.lit(False))
    return F.when(F.col(PATHS).isNotNull(), is_satisfied)


def _path_satisfies(op: CompareOp, text: Column, value: str | float) -> Column:
    if isinstance(value, str):
        return test(op, text, F.lit(value))
    digits = F.regexp_replace(text, _NO_EXPONENT, "")
    number = F.when(text.rlike(_XPATH_NUMBER), digits.try_cast("double"))
    # In XPath a text that is not a number is NaN: unequal to all, and unordered.
    return F.coalesce(test(op, number, float(value)), F.lit(op == "<>"))


def _xpath(node: XPath) -> Column:
    # Missing from pyspark's stubs.
    @F.arrow_udf("boolean")  # type: ignore[attr-defined, untyped-decorator]
    def holds(sources: pa.Array) -> pa.Array:
        engine = compile_xpath(node)
        found = [_xpath_holds(engine, source) for source in sources.to_pylist()]
        return pa.array(found, pa.bool_())

    return holds(F.col(METADATA).cast("binary"))  # type: ignore[no-any-return]


def _xpath_holds(engine: XPathEngine, source: bytes | None) -> bool | None:
    if source is None:
        return None
    try:
        return engine.evaluate(Document(source))
    except EventError:
        return None
