"""Checks names against the vocabulary: modules are nouns, classes are unique, dialect is gone.

`make check` runs it. The words are those of the glossary in docs/ARCHITECTURE.md: one word per
concept. Words of the former dialect are not used in names of modules, classes, functions,
attributes, parameters and variables. Fields of structs are exempt: JSON and configuration show
them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent / "src" / "accord"

# Nouns of the field, although they end in -ing.
_NOUNS: Final = {
    "bulk_brokering", "decoding", "delivery_accounting", "encoding", "event_mapping", "framing",
    "data_skipping", "matching", "message_shaping", "pacing", "signalling", "sniffing",
    "targeting", "testing",
}  # fmt: skip
# The same concept at both ends of a protocol, or a driver and its simulated twin.
_BOTH_ENDS: Final = {
    "Advertisement", "Advice", "Cancel", "Capability", "Clock", "Coupling", "Delivery",
    "Expectation", "Find", "Machine", "Next", "Node", "Outcome", "PageEnd", "Profile", "Publisher",
    "Subscriber",
}  # fmt: skip
_DIALECT: Final = {
    "abroad", "anew", "believing", "desk", "elsewhere", "fate", "forget", "forgets", "guest",
    "guests", "hear", "heard", "hearing", "hurry", "lately", "letters", "namesake", "namesakes",
    "parcel", "parcels", "said", "say", "saying", "says", "tell", "telling", "tells", "tend",
    "tidy", "told", "unneed", "upwards", "widening", "wish", "wishes",
}  # fmt: skip
# Replaced by later designs of the control lane, stub nodes and replay: their classes are named by
# the glossary, their internals are not yet.
_PENDING: Final = (
    "cli/", "core/admission/filter_index/", "core/channels/history/", "core/tiers/",
)  # fmt: skip


def problems() -> Iterator[str]:
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if path.stem.endswith("ing") and path.stem not in _NOUNS:
            yield f"{name}: a module is a noun of the field"
        tree = ast.parse(path.read_text())
        found = [path.stem]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.append(node.name)
                if not node.name.startswith("_"):
                    classes[node.name].append(name)
        if not name.startswith(_PENDING):
            found += sorted(set(_identifiers(tree)))
        for each in found:
            if words := _DIALECT.intersection(re.findall(r"[a-z]+", _snake(each))):
                yield f"{name}: {each}: see the glossary for {', '.join(sorted(words))}"
    for each, places in sorted(classes.items()):
        if len(places) > 1 and each not in _BOTH_ENDS:
            yield f"{each} is a class in {', '.join(places)}"


def _identifiers(tree: ast.Module) -> Iterator[str]:
    """The names of functions, parameters, variables and attributes that a module defines."""
    fields = {
        id(each.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if id(node) not in fields:
                yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def main() -> int:
    found = list(problems())
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
