"""Selector parser: grammar, literals, and errors that point at the character."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Final, cast

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from accord.core.model.errors import PredicateError
from accord.core.model.event import problem_with_name
from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, parse_timestamp
from accord.core.predicates.like import normalise_pattern
from accord.core.predicates.tree import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    ArithmeticOp,
    Attribute,
    Compare,
    CompareOp,
    Expr,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    walk,
)
from accord.core.predicates.xpath import parse_xpath

MAX_LENGTH: Final = 16_384
MAX_DEPTH: Final = 64
MAX_BRACKETS: Final = 2 * MAX_DEPTH  # nested; some of them may be redundant
MAX_NODES: Final = 10_000
MAX_PATTERN: Final = 1_024

_Parsed = Tree[Token]

# What opens and closes, what can precede itself, and everything else; quoted text first.
_NESTING: Final = re.compile(
    r"""'[^']*'?|"[^"]*"?|(?P<open>\()|(?P<close>\))|(?P<before>NOT(?![\w$.])|[+-])|[\w$.]+|[^\s]""",
    re.IGNORECASE,
)


def parse_selector(text: str) -> Expr:
    """Parses `text` to a tree, not yet canonical; empty text selects everything."""
    if len(text) > MAX_LENGTH:
        raise PredicateError(f"{len(text)} characters, at most {MAX_LENGTH} accepted", text=text)
    if not text.strip():
        return TRUE
    _check_nesting(text)
    try:
        parsed = _grammar().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(error, text) from None
    _check_depth(parsed, text)
    return _Builder(text).condition(parsed)


@cache
def _grammar() -> Lark:
    grammar = files(__package__).joinpath("selector.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _check_nesting(text: str) -> None:
    """Refuses excessive nesting before parsing, which would take far longer."""
    brackets = prefixes = 0
    for found in _NESTING.finditer(text):
        kind = found.lastgroup
        brackets += (kind == "open") - (kind == "close")
        prefixes = prefixes + 1 if kind == "before" else 0
        if brackets > MAX_BRACKETS:
            most, expected = MAX_BRACKETS, f"at most {MAX_BRACKETS} brackets within each other"
        elif prefixes > MAX_DEPTH:
            most, expected = MAX_DEPTH, f"at most {MAX_DEPTH} of NOT, + and - in a row"
        else:
            continue
        problem = f"nested deeper than {most} levels"
        raise PredicateError(problem, text=text, position=found.start(), expected=expected)


def _check_depth(parsed: _Parsed, text: str) -> None:
    """Bounds nesting before anything walks the tree recursively."""
    level: list[_Parsed | Token] = [parsed]
    for _ in range(MAX_DEPTH):
        level = [child for node in level if isinstance(node, Tree) for child in node.children]
        if not level:
            return
    position = next((_position(node) for node in level), None)
    raise PredicateError(f"nested deeper than {MAX_DEPTH} levels", text=text, position=position)


def _position(node: _Parsed | Token) -> int:
    return (node.start_pos or 0) if isinstance(node, Token) else node.meta.start_pos


class _Builder:
    """Converts lark's tree; each method is named after the grammar's rule."""

    def __init__(self, text: str) -> None:
        self._text = text

    def condition(self, parsed: _Parsed) -> Expr:
        """Converts `parsed` to a truth value; a constant of another kind is an error."""
        node = self.build(parsed)
        if not isinstance(node, Arithmetic | Negative | Literal):
            return node
        is_constant = not any(isinstance(part, Attribute) for part in walk(node))
        is_truth = isinstance(node, Literal) and isinstance(node.value, bool)
        if is_constant and not is_truth:
            raise self._error(
                "a constant is no condition", parsed, "a comparison, a boolean or an attribute"
            )
        return node

    def build(self, parsed: _Parsed) -> Expr:
        rule: Callable[[_Parsed], Expr] = getattr(self, parsed.data)
        return rule(parsed)

    def any_of(self, parsed: _Parsed) -> Expr:
        return Or(tuple(self.condition(item) for item in _trees(parsed)))

    def all_of(self, parsed: _Parsed) -> Expr:
        return And(tuple(self.condition(item) for item in _trees(parsed)))

    def negation(self, parsed: _Parsed) -> Expr:
        return Not(self.condition(_trees(parsed)[0]))

    def comparison(self, parsed: _Parsed) -> Expr:
        left, op, right = parsed.children
        a, b = self.build(cast(_Parsed, left)), self.build(cast(_Parsed, right))
        symbol = cast(CompareOp, "<>" if op == "!=" else str(op))
        self._check_comparison(symbol, a, b, parsed)
        return Compare(symbol, a, b)

    def _check_comparison(self, op: CompareOp, a: Expr, b: Expr, parsed: _Parsed) -> None:
        constants = [side.value for side in (a, b) if isinstance(side, Literal)]
        has_boolean = any(isinstance(value, bool) for value in constants)
        if has_boolean and op not in ("=", "<>"):
            raise self._error("TRUE and FALSE have no order", parsed, "= or <>")
        if has_boolean and any(type(value) in (int, float) for value in constants):
            raise self._error("a boolean never equals a number", parsed, "values of one kind")

    def between(self, parsed: _Parsed) -> Expr:
        operand, low, high = (self.build(item) for item in _trees(parsed))
        self._check_size(operand, 2, parsed)
        return And((Compare(">=", operand, low), Compare("<=", operand, high)))

    def not_between(self, parsed: _Parsed) -> Expr:
        return Not(self.between(parsed))

    def in_list(self, parsed: _Parsed) -> Expr:
        operand, *items = (self.build(item) for item in _trees(parsed))
        self._check_size(operand, len(items), parsed)
        return Or(tuple(Compare("=", operand, item) for item in items))

    def _check_size(self, operand: Expr, times: int, parsed: _Parsed) -> None:
        """BETWEEN and IN repeat their operand, so nested ones would multiply without bound."""
        if isinstance(operand, Attribute):
            return
        if times * sum(1 for _ in walk(operand)) > MAX_NODES:
            raise self._error("too large when written out", parsed, "a simpler operand")

    def not_in_list(self, parsed: _Parsed) -> Expr:
        return Not(self.in_list(parsed))

    def like(self, parsed: _Parsed) -> Expr:
        operand = self.build(cast(_Parsed, parsed.children[0]))
        pattern, *escape = cast(list[Token], parsed.children[1:])
        symbol = _unquoted(escape[0]) if escape else None
        if len(pattern) > MAX_PATTERN:
            raise self._error("a long pattern", pattern, f"at most {MAX_PATTERN} characters")
        if symbol is not None and len(symbol) != 1:
            raise self._error("a longer escape", escape[0], "ESCAPE with one character")
        try:
            return Like(operand, normalise_pattern(_unquoted(pattern), symbol))
        except ValueError as error:
            raise self._error(str(error), pattern) from None

    def not_like(self, parsed: _Parsed) -> Expr:
        return Not(self.like(parsed))

    def is_null(self, parsed: _Parsed) -> Expr:
        return IsNull(self.build(_trees(parsed)[0]))

    def is_not_null(self, parsed: _Parsed) -> Expr:
        return IsNull(self.build(_trees(parsed)[0]), is_negated=True)

    def xpath(self, parsed: _Parsed) -> Expr:
        quoted, *bindings = parsed.children
        namespaces = {
            str(item.children[0]): _unquoted(cast(Token, item.children[1]))
            for item in cast(list[_Parsed], bindings)
        }
        try:
            return parse_xpath(_unquoted(cast(Token, quoted)), namespaces)
        except PredicateError as error:
            inside = 0 if error.position is None else error.position
            position = _position(cast(Token, quoted)) + 1 + inside
            raise PredicateError(
                error.problem, text=self._text, position=position, expected=error.expected
            ) from None

    def arithmetic(self, parsed: _Parsed) -> Expr:
        left, op, right = parsed.children
        a, b = self.build(cast(_Parsed, left)), self.build(cast(_Parsed, right))
        for side, where in ((a, left), (b, right)):
            if isinstance(side, Literal) and type(side.value) not in (int, float):
                raise self._error(f"no arithmetic on {side}", where, "a number")
        return Arithmetic(cast(ArithmeticOp, str(op)), a, b)

    def signed(self, parsed: _Parsed) -> Expr:
        sign, operand = parsed.children
        tree = cast(_Parsed, operand)
        if tree.data == "number":
            return self._number(cast(Token, tree.children[0]), is_negative=sign == "-")
        node = self.build(tree)
        if isinstance(node, Literal):
            if type(node.value) not in (int, float):
                raise self._error(f"no sign on {node}", tree, "a number")
            return self._literal(-cast(float, node.value), tree) if sign == "-" else node
        # A plus sign changes nothing, but requires its operand to be a number.
        return Negative(node) if sign == "-" else Negative(Negative(node))

    def name(self, parsed: _Parsed) -> Expr:
        return self._attribute(str(parsed.children[0]), parsed)

    def delimited(self, parsed: _Parsed) -> Expr:
        return self._attribute(str(parsed.children[0])[1:-1].replace('""', '"'), parsed)

    def _attribute(self, name: str, parsed: _Parsed) -> Expr:
        if problem := problem_with_name(name):
            raise self._error(problem, parsed)
        return Attribute(name)

    def number(self, parsed: _Parsed) -> Expr:
        return self._number(cast(Token, parsed.children[0]), is_negative=False)

    def _number(self, token: Token, *, is_negative: bool) -> Expr:
        if len(token) > MAX_PATTERN:
            raise self._error("a long number", token, f"at most {MAX_PATTERN} digits")
        number = _parse_number(str(token))
        return self._literal(-number if is_negative else number, token)

    def _literal(self, number: int | float, where: _Parsed | Token) -> Expr:
        if isinstance(number, int) and not INTEGER_MIN <= number <= INTEGER_MAX:
            raise self._error("an integer beyond 64 bits", where, "a smaller one, or a float")
        if not math.isfinite(number):
            raise self._error("a number beyond the range of floats", where)
        return Literal(number)

    def string(self, parsed: _Parsed) -> Expr:
        return Literal(_unquoted(cast(Token, parsed.children[0])))

    def timestamp(self, parsed: _Parsed) -> Expr:
        token = cast(Token, parsed.children[0])
        moment = parse_timestamp(_unquoted(token))
        if moment is None:
            raise self._error("not a timestamp", token, "ISO 8601 such as '2026-01-31T12:00:00Z'")
        return Literal(moment)

    def true(self, _parsed: _Parsed) -> Expr:
        return TRUE

    def false(self, _parsed: _Parsed) -> Expr:
        return FALSE

    def _error(self, problem: str, where: _Parsed | Token, expected: str = "") -> PredicateError:
        return PredicateError(
            problem, text=self._text, position=_position(where), expected=expected
        )


def _trees(parsed: _Parsed) -> list[_Parsed]:
    return cast(list[_Parsed], parsed.children)


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _parse_number(text: str) -> int | float:
    """Java's literals, as JMS prescribes: 0x2A, 042 (octal), 42L, 4.2e1, 42d."""
    if text[:2] in ("0x", "0X"):
        return int(text.rstrip("lL"), 16)
    digits = text.rstrip("lLfFdD")
    if not digits.isdigit() or text[-1] in "fFdD":
        return float(digits)
    is_octal = len(digits) > 1 and digits[0] == "0" and not set(digits) & {"8", "9"}
    return int(digits, 8 if is_octal else 10)


_EXPECTED: Final = {
    "$END": "the end",
    "COMPARISON": "a comparison",
    "DELIMITED": "",
    "FACTOR": "",
    "LPAR": "(",
    "NAME": "an attribute",
    "NUMBER": "a number",
    "RPAR": ")",
    "COMMA": ",",
    "EQUAL": "=",
    "SIGN": "",
    "STRING": "a quoted string",
    "_TIMESTAMP": "TIMESTAMP",
    "_XPATH": "",
}


def _syntax_error(error: UnexpectedInput, text: str) -> PredicateError:
    if isinstance(error, UnexpectedToken):
        token, wanted = error.token, set(error.accepts or error.expected)
        if token.type == "$END":
            return _error_at(len(text), "the predicate ends too early", wanted, text)
        return _error_at(token.start_pos or 0, f"unexpected {str(token)!r}", wanted, text)
    assert isinstance(error, UnexpectedCharacters)
    position = cast(int, error.pos_in_stream)
    found = text[position]
    if found in "'\"":
        return _error_at(position, f"a quote {found} that is never closed", set(), text)
    word = _word_at(text, position)
    return _error_at(position, f"unexpected {word!r}", set(error.allowed), text)


def _word_at(text: str, position: int) -> str:
    end = position + 1
    while text[position].isalnum() and end < len(text) and text[end].isalnum():
        end += 1
    return text[position:end]


def _error_at(position: int, problem: str, accepted: set[str], text: str) -> PredicateError:
    named = sorted({_EXPECTED.get(name, name.lstrip("_")) for name in accepted} - {""})
    expected = " or ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))
    return PredicateError(problem, text=text, position=position, expected=expected)
