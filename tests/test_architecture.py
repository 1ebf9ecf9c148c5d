"""Paths and classes that ARCHITECTURE.md and CONTRIBUTING.md name exist, and tables are current."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from accord.core.broker.connection_state import BUFFERED, IGNORED, STATES, ConnectionState

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "accord"
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"

_SPAN: Final = re.compile(r"`([^`]+)`")
_PATH: Final = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?")
_FILE: Final = re.compile(r"\.(py|md|toml|lark)$")
_CLASS: Final = re.compile(r"([A-Z]\w*[a-z]\w*)(?:\.([a-z_]\w*))?(?:\(\))?")
_MADE: Final = "build/"  # made by `make`

Lines = Iterator[tuple[int, str]]
Methods = dict[str, set[str]]


def _lines(page: Path, *, is_fenced: bool) -> Lines:
    """The numbered lines of a page, either inside or outside its fenced blocks."""
    is_inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_inside = not is_inside
        elif is_inside == is_fenced:
            yield number, line


def _paths(span: str) -> Iterator[str]:
    """The paths in a span: a single word with a slash, and words that end like a file."""
    words = span.split()
    for word in words:
        path = word.partition("::")[0]
        if _PATH.fullmatch(path) and (_FILE.search(path) or ("/" in path and len(words) == 1)):
            yield path


def _found(path: str, directories: list[Path]) -> Path | None:
    """The first match of a path, which may be a pattern, below one of the directories."""
    for directory in directories:
        for found in directory.glob(path.rstrip("/")):
            if found.is_dir() or not path.endswith("/"):
                return found
    return None


def _missing_paths(page: Path) -> Iterator[str]:
    for number, line in _lines(page, is_fenced=False):
        before: Path | None = None  # the directory of the path before it in this line
        for span in _SPAN.findall(line):
            for path in _paths(span):
                if path.startswith(_MADE):
                    continue
                is_bare = "/" not in path and before is not None
                directories = [SOURCE, ROOT, *([before] if is_bare and before else [])]
                found = _found(path, directories)
                if found is None:
                    yield f"{page.name}:{number}: {path}"
                else:
                    before = found if found.is_dir() else found.parent
    for number, line in _lines(page, is_fenced=True):
        for path in _paths(line):
            if _found(path, [SOURCE, ROOT]) is None:
                yield f"{page.name}:{number}: {path}"


def _name_of(base: ast.expr) -> str:
    """`Base`, `module.Base` and `Base[T]` are all `Base`."""
    match base:
        case ast.Subscript(value=value):
            return _name_of(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _classes() -> tuple[Methods, Methods]:
    """The methods and fields, and the bases, of all classes; those of one name together."""
    methods: Methods = {}
    bases: Methods = {}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            bases.setdefault(node.name, set()).update(map(_name_of, node.bases))
            known = methods.setdefault(node.name, set())
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    known.add(each.name)
                elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    known.add(each.target.id)
    return methods, bases


def _has(name: str, method: str, methods: Methods, bases: Methods) -> bool:
    """Whether a class has a method, its own or inherited."""
    return method in methods.get(name, ()) or any(
        _has(base, method, methods, bases) for base in bases.get(name, ()) if base != name
    )


def _missing_classes(page: Path) -> Iterator[str]:
    methods, bases = _classes()
    for number, line in _lines(page, is_fenced=False):
        for span in _SPAN.findall(line):
            named = _CLASS.fullmatch(span)
            if named is None:
                continue
            name, method = named.groups()
            if name not in methods or (method and not _has(name, method, methods, bases)):
                yield f"{page.name}:{number}: {span}"


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    assert list(_missing_paths(page)) == []


def test_every_class_is_defined() -> None:
    assert list(_missing_classes(ARCHITECTURE)) == []


def _state_row(state: ConnectionState) -> str:
    """A state of a connection as a row of a Markdown table."""
    refused = [
        f'{", ".join(kind.name for kind in kinds)}: "{sentence.format("…")}"'
        for kinds, sentence in state.refused.items()
    ]
    is_refusal = state.others not in (BUFFERED, IGNORED, "")
    cells = (
        f"`{state.name}`",
        ", ".join(kind.name for kind in state.accepted),
        "; ".join(refused),
        f'refused: "{state.others}"' if is_refusal else state.others,
        ", ".join(f"`{STATES[each].name}`" for each in state.successors),
    )
    return f"| {' | '.join(cell or '–' for cell in cells)} |"


def test_the_table_of_connection_states_is_current() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    section = page.partition("## Connection states\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [_state_row(state) for state in STATES]
