"""The predicate tree, common to selectors and XPath conditions.

Nodes are frozen values. `str(node)` is selector text that parses back to an equal tree, so it
serves as canonical form, as identity across processes, and for display.

Logic is three-valued. An absent attribute, a comparison of unlike kinds, or arithmetic without a
finite result is unknown (None); a predicate matches only if it is true.

XPath conditions have nodes of their own, because their comparisons are existential: `/a/b > 5` is
true if *any* selected node satisfies it, so two tests on one path can't be merged as two tests on
one attribute can. Without a document they are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Final
from typing import Literal as OneOf

from accord.core.model.values import Value, kind_of

CompareOp = OneOf["=", "<>", "<", "<=", ">", ">="]
ArithmeticOp = OneOf["+", "-", "*", "/"]

NEGATED: Final[dict[CompareOp, CompareOp]] = {
    "=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
}  # fmt: skip
MIRRORED: Final[dict[CompareOp, CompareOp]] = {
    "=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=",
}  # fmt: skip

RESERVED: Final = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")
)


@dataclass(frozen=True, eq=False)
class Expr:
    """Base of all nodes, compared by their text: Python's own 1 == TRUE must not count here.

    `children` allows walks without recursion.
    """

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    @cached_property
    def text(self) -> str:
        return self._render()

    def _render(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@dataclass(frozen=True, eq=False)
class Literal(Expr):
    """A constant; None is the unknown truth value, which only IS NULL distinguishes from false."""

    value: Value | None

    def _render(self) -> str:
        return "0 / 0 = 0" if self.value is None else render_value(self.value)


@dataclass(frozen=True, eq=False)
class Attribute(Expr):
    name: str

    def _render(self) -> str:
        return render_name(self.name)


@dataclass(frozen=True, eq=False)
class _WithOperand(Expr):
    operand: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


@dataclass(frozen=True, eq=False)
class Negative(_WithOperand):
    """Unary minus."""

    def _render(self) -> str:
        return f"-{_operand(self.operand)}"


@dataclass(frozen=True, eq=False)
class Arithmetic(Expr):
    op: ArithmeticOp
    left: Expr
    right: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    def _render(self) -> str:
        return f"{_operand(self.left)} {self.op} {_operand(self.right)}"


@dataclass(frozen=True, eq=False)
class Compare(Expr):
    op: CompareOp
    left: Expr
    right: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    def _render(self) -> str:
        return f"{_term(self.left)} {self.op} {_term(self.right)}"


@dataclass(frozen=True, eq=False)
class In(_WithOperand):
    """Whether `operand` equals one of `values`, in the order of `sort_key`."""

    values: tuple[Value, ...]
    is_negated: bool = False

    def _render(self) -> str:
        listed = ", ".join(map(render_value, self.values))
        return f"{_term(self.operand)} {'NOT ' * self.is_negated}IN ({listed})"


@dataclass(frozen=True, eq=False)
class Like(_WithOperand):
    """`pattern` has the wildcards `%` and `_`; a backslash makes the next character literal."""

    pattern: str
    is_negated: bool = False

    def _render(self) -> str:
        escape = " ESCAPE '\\'" if "\\" in self.pattern else ""
        pattern = render_value(self.pattern)
        return f"{_term(self.operand)} {'NOT ' * self.is_negated}LIKE {pattern}{escape}"


@dataclass(frozen=True, eq=False)
class IsNull(_WithOperand):
    """Whether `operand`, a value or a condition, is unknown. Never unknown itself."""

    is_negated: bool = False

    def _render(self) -> str:
        return f"{_term(self.operand)} IS {'NOT ' * self.is_negated}NULL"


@dataclass(frozen=True, eq=False)
class _WithItems(Expr):
    items: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.items


@dataclass(frozen=True, eq=False)
class And(_WithItems):
    def _render(self) -> str:
        return " AND ".join(
            f"({item})" if isinstance(item, And | Or) else item.text for item in self.items
        )


@dataclass(frozen=True, eq=False)
class Or(_WithItems):
    def _render(self) -> str:
        return " OR ".join(
            f"({item})" if isinstance(item, Or) else item.text for item in self.items
        )


@dataclass(frozen=True, eq=False)
class Not(Expr):
    """Negation; in canonical trees only above XPath tests, elsewhere it is pushed down."""

    item: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.item,)

    def _render(self) -> str:
        return (
            f"NOT {self.item}" if isinstance(self.item, PathTest | XPath) else f"NOT ({self.item})"
        )


@dataclass(frozen=True, eq=False)
class PathTest(Expr):
    """Whether any node selected by `path` exists (`op` None) or compares so with `value`.

    `path` is a key of `Document.paths`. A string is compared with a node's string value, a number
    with XPath's number() of it.
    """

    path: str
    op: CompareOp | None = None
    value: str | float | None = None

    def _render(self) -> str:
        prefixes: dict[str, str] = {}
        path = _NAMESPACED.sub(
            lambda found: prefixes.setdefault(found[1], f"n{len(prefixes)}") + ":", self.path
        )
        test = path
        if self.op is not None and self.value is not None:
            op = "!=" if self.op == "<>" else self.op
            test = f"{path} {op} {_render_xpath_value(self.value)}"
        return render_xpath(test, tuple((prefix, uri) for uri, prefix in prefixes.items()))


@dataclass(frozen=True, eq=False)
class XPath(Expr):
    """An XPath 1.0 condition that only an XPath engine can evaluate."""

    expression: str
    namespaces: tuple[tuple[str, str], ...] = ()

    def _render(self) -> str:
        return render_xpath(self.expression, self.namespaces)


TRUE: Final = Literal(True)
FALSE: Final = Literal(False)
UNKNOWN: Final = Literal(None)

_NAMESPACED: Final = re.compile(r"\{([^}]*)\}")
_BARE_NAME: Final = re.compile(r"(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*")


def walk(node: Expr) -> Iterator[Expr]:
    """All nodes of the tree, without recursion."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(current.children)


def sort_key(value: Value) -> tuple[int, Value]:
    """A total order over values of mixed kinds."""
    return kind_of(value), value


def render_value(value: Value) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC).isoformat()}'"
    return repr(value)


def render_name(name: str) -> str:
    if name.isascii() and _BARE_NAME.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def render_xpath(expression: str, namespaces: tuple[tuple[str, str], ...]) -> str:
    listed = ", ".join(f"{prefix} = {_quoted(uri)}" for prefix, uri in namespaces)
    return f"XPATH {_quoted(expression)}{' USING ' * bool(listed)}{listed}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _render_xpath_value(value: str | float) -> str:
    if isinstance(value, str):
        return f'"{value}"' if '"' not in value else f"'{value}'"
    # XPath 1.0 has no exponents: write all digits.
    return str(int(value)) if value.is_integer() else format(Decimal(repr(value)), "f")


def _operand(node: Expr) -> str:
    """`node` as an operand of arithmetic: all but the simplest in parentheses."""
    if isinstance(node, Attribute):
        return node.text
    if isinstance(node, Literal) and not node.text.startswith("-"):
        return node.text
    return f"({node})"


def _term(node: Expr) -> str:
    """`node` as an operand of a comparison."""
    return (
        node.text if isinstance(node, Literal | Attribute | Arithmetic | Negative) else f"({node})"
    )
