"""XPath 1.0 conditions: parsed by elementpath, mapped to the tree if that preserves their meaning.

What maps: `and`, `or`, `not()`, `boolean()`, and comparisons of a simple path with a constant or
its mere existence. A simple path descends by names from the document (`/report/position/@unit`,
`report/altitude`), or is one name at any depth (`//altitude`, `//@unit`); a last predicate of the
same form may follow (`/report/sensor[@kind='ir']`), because "some sensor whose kind is ir" and
"some kind of a sensor is ir" are the same question.

Everything else becomes one `XPath` node that holds the whole condition for an XPath engine. A
conjunction with one such part also keeps its simple parts beside it: they are implied, and let an
index rule the event out before any engine runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from lxml import etree

from accord.core.model.document import Condition, Document
from accord.core.model.errors import PredicateError
from accord.core.model.values import xpath_number
from accord.core.predicates.tree import (
    MIRRORED,
    And,
    CompareOp,
    Expr,
    Literal,
    Not,
    Or,
    PathTest,
    XPath,
)

MAX_LENGTH: Final = 4_096
MAX_ARGUMENTS: Final = 16
MAX_COST: Final = 10**7
INLINE_COST: Final = 10**5  # ten milliseconds at worst: costlier ones can be evaluated elsewhere

_Token = Any  # elementpath's tokens carry no usable types
_Constant = str | float | bool
_OPS: Final[dict[str, CompareOp]] = {
    "=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_FAR_STEP: Final = re.compile(r"//|descendant(?:-or-self)?|(?:following|preceding)(?!-)")
_NEAR_STEP: Final = re.compile(r"(?:following|preceding)-sibling")
_JOIN: Final = re.compile(r"\b(?:or|and)\b")
_UP_STEPS: Final = ("..", "parent", "ancestor", "ancestor-or-self")
_NAME_ERRORS: Final = ("err:XPST0008", "err:XPST0017", "err:XPST0081", "err:XPST0010")


def parse_xpath(text: str, namespaces: Mapping[str, str] | None = None) -> Expr:
    """Parses the XPath 1.0 condition `text`, with `namespaces` from prefix to URI."""
    if len(text) > MAX_LENGTH:
        raise PredicateError(f"{len(text)} characters, at most {MAX_LENGTH} accepted", text=text)
    bindings = dict(namespaces or {})
    for prefix, uri in bindings.items():
        if not prefix or not uri or set(uri) & set("{}"):
            raise PredicateError(f"no namespace can be {prefix}={uri!r}", text=text)
    used = tuple(sorted((prefix, uri) for prefix, uri in bindings.items() if f"{prefix}:" in text))
    whole = XPath(text.strip(), used)
    root = _tokens(text, bindings, is_compilable=_is_compilable(whole))
    if root is None:
        return whole
    for token in root.iter():
        if token.symbol == "$":
            raise PredicateError("a variable", text=text, position=_start(token, text))
        if len(token) > MAX_ARGUMENTS:
            problem = f"more than {MAX_ARGUMENTS} arguments"
            raise PredicateError(problem, text=text, position=_start(token, text))
    try:
        return _Mapper(bindings).condition(root, whole)
    except RecursionError:
        return whole


def _is_compilable(node: XPath) -> bool:
    try:
        _compile(node.expression, node)
        _compile(_from_document(node), node)
    except (etree.XPathSyntaxError, ValueError):
        return False
    return True


def _tokens(text: str, namespaces: dict[str, str], *, is_compilable: bool) -> _Token | None:
    """elementpath's tokens of `text`; None if only the engine supports it.

    elementpath is the better judge of names (functions, prefixes), but refuses some rare conditions
    that XPath 1.0 allows, such as `1 = 2 = 2`, and fails on constants without a value.
    """
    # Imported late: it takes longer to load than everything else, and selectors don't need it.
    from elementpath import ElementPathError, XPath1Parser  # noqa: PLC0415

    try:
        tokens = XPath1Parser(namespaces=namespaces).parse(text)
    except ElementPathError as error:
        if is_compilable and (error.code or "") not in _NAME_ERRORS:
            return None
        position = _start(error.token, text)
        raise PredicateError(error.message, text=text, position=position) from None
    except (RecursionError, ValueError, TypeError, AttributeError) as error:
        raise PredicateError(f"not an XPath 1.0 condition ({error})", text=text) from None
    if not is_compilable:
        raise PredicateError("not an XPath 1.0 condition", text=text)
    return tokens


def _start(token: _Token, text: str) -> int | None:
    if token is None:
        return None
    return len(text) if token.symbol == "(end)" else int(token.span[0])


def _compile(expression: str, node: XPath) -> etree.XPath:
    return etree.XPath(expression, namespaces=dict(node.namespaces) or None, regexp=False)


def _from_document(node: XPath) -> str:
    """The condition, starting at the document instead of, as lxml does, at its root."""
    return f"boolean(/self::node()[boolean({node.expression})])"


class XPathEngine:
    """A compiled condition that can estimate its cost on a document.

    Nested steps to any distance (`//`, following, absolute paths in predicates, …) multiply by the
    number of nodes, steps to siblings and parents by the most children of a node.
    """

    __slots__ = ("_compiled", "_condition", "_far", "_near", "_terms")

    def __init__(self, node: XPath) -> None:
        self._condition: Condition = node.expression, node.namespaces
        self._compiled = _compile(_from_document(node), node)
        far, self._near = _degrees_of(node)
        self._far = max(1, far)
        # The costs of joined conditions add up.
        joined = len(_JOIN.findall(node.expression))
        self._terms = 1 + joined // 4

    def evaluate(self, document: Document) -> bool | None:
        """Unknown if it would take too long, or the engine stops at limits of its own.

        Also, for the time being, if `document` defers its evaluation.
        """
        if document.knows(self._condition):
            return document.recall(self._condition)
        cost = self.cost(document)
        if document.is_deferred(self._condition, cost):
            return None
        value = None if cost > MAX_COST else _run(self._compiled, document.root)
        document.remember(self._condition, value)
        return value

    def cost(self, document: Document) -> int:
        """Approximate number of nodes visited."""
        nodes: int = document.nodes**self._far
        siblings: int = document.widest**self._near
        return self._terms * nodes * siblings


def run_xpath(root: etree._Element, condition: Condition) -> bool | None:
    """The truth of `condition`, however long it takes: for callers that can be interrupted."""
    expression, namespaces = condition
    node = XPath(expression, namespaces)
    try:
        return _run(_compile(_from_document(node), node), root)
    except (etree.XPathSyntaxError, ValueError):
        return None


def _run(compiled: etree.XPath, root: etree._Element) -> bool | None:
    try:
        return cast(bool, compiled(root))
    except etree.XPathError:
        return None


@lru_cache(maxsize=4_096)
def compile_xpath(node: XPath) -> XPathEngine:
    return XPathEngine(node)


def _degrees_of(node: XPath) -> tuple[int, int]:
    """Nesting depths of steps to any distance, and of steps to siblings."""
    from elementpath import ElementPathError, XPath1Parser  # noqa: PLC0415

    text = node.expression
    try:
        token = XPath1Parser(namespaces=dict(node.namespaces)).parse(text)
        return _degree(token, _FAR_STEP), _degree(token, _NEAR_STEP)
    except (ElementPathError, RecursionError):
        return len(_FAR_STEP.findall(text)), len(_NEAR_STEP.findall(text))


def _degree(token: _Token, step: re.Pattern[str], *, is_inside: bool = False) -> int:
    """Nesting depth of such steps, in paths, predicates and comparisons."""
    steps, inside = _path_degrees(token, step, is_inside)
    # The result of a path is a set: a third step costs no more than the second did.
    return min(2, steps) + inside


def _path_degrees(token: _Token, step: re.Pattern[str], is_inside: bool) -> tuple[int, int]:
    """Number of such steps in a path, and the largest degree among its predicates."""
    if token.symbol == "[":
        steps, inside = _path_degrees(token[0], step, is_inside)
        return steps, max(inside, _degree(token[1], step, is_inside=True))
    own = _is_counted(token, step, is_inside)
    if token.symbol in ("/", "//") or own:
        parts = [_path_degrees(child, step, is_inside) for child in token]
        counted = (1 if own else 0) + sum(steps for steps, _ in parts)
        return counted, max((i for _, i in parts), default=0)
    degrees = [_degree(child, step, is_inside=is_inside) for child in token]
    return 0, sum(degrees) if token.symbol in _OPS else max(degrees, default=0)


def _is_counted(token: _Token, step: re.Pattern[str], is_inside: bool) -> bool:
    if step.fullmatch(token.symbol):
        return True
    if token.symbol != "/":
        return False
    if step is _FAR_STEP:
        return is_inside and len(token) == 0  # the root, whose text is that of all nodes
    if len(token) == 2:
        # From a node to its parent and then to a child is as far as to a sibling.
        return _goes_up(token[0]) and not _goes_up(token[1])
    return is_inside and len(token) == 1


def _goes_up(token: _Token) -> bool:
    if token.symbol == "/" and len(token) == 2:
        return _goes_up(token[1])
    return token.symbol in _UP_STEPS


class _Mapper:
    """Maps tokens to the tree; each method returns None if there is no equivalent."""

    def __init__(self, namespaces: dict[str, str]) -> None:
        self._namespaces = {"xml": "http://www.w3.org/XML/1998/namespace", **namespaces}

    def condition(self, token: _Token, whole: XPath) -> Expr:
        mapped = self._map(token)
        if mapped is not None:
            return mapped
        implied = [part for item in _conjuncts(token) if (part := self._map(item)) is not None]
        return And((*implied, whole)) if implied else whole

    def _map(self, token: _Token) -> Expr | None:
        symbol = token.symbol
        if symbol in ("and", "or"):
            left, right = self._map(token[0]), self._map(token[1])
            if left is None or right is None:
                return None
            return And((left, right)) if symbol == "and" else Or((left, right))
        if symbol in ("not", "boolean", "(") and len(token) == 1:
            inner = self._map(token[0])
            return Not(inner) if inner is not None and symbol == "not" else inner
        if symbol in _OPS and len(token) == 2:
            return self._comparison(_OPS[symbol], token[0], token[1])
        constant = _constant(token)
        if constant is not None:
            return Literal(bool(constant))
        return self._existence(token)

    def _comparison(self, op: CompareOp, left: _Token, right: _Token) -> Expr | None:
        path, constant = self._path(left), _constant(right)
        if path is None:
            op, path, constant = MIRRORED[op], self._path(right), _constant(left)
        if path is None or constant is None:
            return None
        if isinstance(constant, bool):
            if op not in ("=", "<>"):
                return None
            exists = PathTest(path)
            return exists if constant is (op == "=") else Not(exists)
        if op not in ("=", "<>"):
            constant = xpath_number(constant) if isinstance(constant, str) else constant
        if isinstance(constant, float) and not math.isfinite(constant):
            return None
        return PathTest(path, op, constant)

    def _existence(self, token: _Token) -> Expr | None:
        path = self._path(token)
        if path is not None:
            return PathTest(path)
        if token.symbol == "/" and len(token) == 2 and token[1].symbol == "[":
            return self._filtered(token[0], *token[1])
        return None

    def _filtered(self, parent: _Token, step: _Token, test: _Token) -> Expr | None:
        """`parent/step[test]`, the same as testing what the predicate names below `parent/step`."""
        base, name, inner = self._path(parent), self._step(step), self._map(test)
        if base is None or name is None or base.startswith("//") or name.startswith("@"):
            return None
        if not isinstance(inner, PathTest) or _has_absolute_path(test):
            return None
        return PathTest(f"{base}/{name}{inner.path}", inner.op, inner.value)

    def _path(self, token: _Token) -> str | None:
        if token.symbol == "//" and len(token) == 1:
            name = self._step(token[0])
            return None if name is None else f"//{name}"
        steps = self._steps(token)
        if steps is None or any(step.startswith("@") for step in steps[:-1]):
            return None
        return "/" + "/".join(steps)

    def _steps(self, token: _Token) -> list[str] | None:
        if token.symbol != "/":
            step = self._step(token)
            return None if step is None else [step]
        if len(token) == 0:
            return None
        before = [] if len(token) == 1 else self._steps(token[0])
        last = self._step(token[-1])
        return None if before is None or last is None else [*before, last]

    def _step(self, token: _Token) -> str | None:
        if token.symbol == "@":
            name = self._step(token[0])
            return None if name is None or name.startswith("@") else f"@{name}"
        if token.symbol == "(name)":
            return str(token.value)
        if token.symbol == ":" and token[1].symbol == "(name)":
            uri = self._namespaces.get(token[0].value)
            return None if uri is None else f"{{{uri}}}{token[1].value}"
        return None


def _conjuncts(token: _Token) -> Iterator[_Token]:
    if token.symbol == "and":
        yield from _conjuncts(token[0])
        yield from _conjuncts(token[1])
    else:
        yield token


def _constant(token: _Token) -> _Constant | None:
    if token.symbol == "(string)":
        return str(token.value)
    if token.symbol in ("(integer)", "(decimal)", "(float)"):
        try:
            return float(token.value)
        except OverflowError:
            return None
    if token.symbol == "-" and len(token) == 1:
        operand = _constant(token[0])
        return -operand if isinstance(operand, float) else None
    if token.symbol in ("true", "false") and len(token) == 0:
        return bool(token.symbol == "true")
    return None


def _has_absolute_path(token: _Token) -> bool:
    """Whether a path in `token` starts at the document, not at the step it filters."""
    return any(part.symbol in ("/", "//") and len(part) == 1 for part in token.iter())
