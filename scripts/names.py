"""Checks names against the vocabulary: modules are nouns, classes are unique, dialect is gone.

`make check` runs it. The words are those of the glossary in docs/ARCHITECTURE.md: one word per
concept. Words of the former dialect are not used in names of modules and classes.
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
    "housekeeping", "matching", "message_shaping", "pacing", "pruning", "signalling", "sniffing",
    "targeting", "testing",
}  # fmt: skip
# The same concept at both ends of a protocol, or a driver and its simulated twin.
_BOTH_ENDS: Final = {
    "Advertisement", "Advice", "Cancel", "Capability", "Clock", "Coupling", "Delivery",
    "Expectation", "Find", "Machine", "Next", "Node", "Outcome", "PageEnd", "Profile", "Publisher",
    "Subscriber",
}  # fmt: skip
_DIALECT: Final = {
    "abroad", "believing", "desk", "elsewhere", "guest", "guests", "heard", "hear", "hearing",
    "lately", "letters", "namesake", "namesakes", "parcel", "parcels", "saying", "telling",
    "told", "upwards", "widening",
}  # fmt: skip
# Stored predicate folders name the classes of this package.
_PENDING: Final = ("pipeline/bulk/",)


def problems() -> Iterator[str]:
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(_PENDING):
            continue
        if path.stem.endswith("ing") and path.stem not in _NOUNS:
            yield f"{name}: a module is a noun of the field"
        names = [path.stem]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names.append(node.name)
                if not node.name.startswith("_"):
                    classes[node.name].append(name)
        for each in names:
            found = _DIALECT.intersection(re.findall(r"[a-z]+", _snake(each)))
            if found:
                yield f"{name}: {each}: see the glossary for {', '.join(sorted(found))}"
    for each, places in sorted(classes.items()):
        if len(places) > 1 and each not in _BOTH_ENDS:
            yield f"{each} is a class in {', '.join(places)}"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def main() -> int:
    found = list(problems())
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
