"""XML metadata, parsed once and safe to inspect.

One walk over the parsed document yields two views:

*Paths* are what XPath conditions see. `paths["/report/position/@unit"]` holds the string value of
every node that this path selects, in document order; `paths["//altitude"]` those of all elements of
that name at any depth. Names in a namespace are written `{uri}name`. Repeated elements stay
repeated, so a comparison keeps XPath's meaning: true if any of them satisfies it.

*Attributes* are what selectors see, by this rule: each element without child elements, and each XML
attribute, becomes an attribute named by the local names on the path to it below the root element,
joined by dots (`position.altitude`, `position.unit`), with its text inferred to a typed value. If a
name occurs more than once, the first in document order counts, as in XPath's `string()`, and an
element before an XML attribute. Empty elements give no attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lxml import etree

from accord.core.model.errors import EventError
from accord.core.model.values import Value, infer, xpath_number

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 10_000
MAX_TAG_LENGTH: Final = 512  # including its namespace
# Limit on the total length of paths and string values, as a multiple of the source's, plus a bit:
# few documents come near, and none may take much more memory than it took to send it.
MAX_GROWTH: Final = 32
FREE_TEXT: Final = 64 * 1024
MAX_REMEMBERED: Final = 1_000  # values of conditions, besides deferred ones

Paths = Mapping[str, tuple[str, ...]]
# An XPath condition for an engine: its expression, and prefixes with their URIs.
Condition = tuple[str, tuple[tuple[str, str], ...]]


class Document:
    """An event's XML metadata: `root` for XPath, `paths` and `attributes` for the index.

    It caches the results of XPath engines. A caller that can have costly conditions evaluated
    elsewhere sets the cost from which to do so with `defer`. Those are then unknown and listed in
    `deferred`; `remember` makes their results known.
    """

    __slots__ = (
        "_deferred",
        "_inline_cost",
        "_numbers",
        "_remembered",
        "attributes",
        "nodes",
        "paths",
        "root",
        "source",
        "widest",
    )

    def __init__(self, source: bytes) -> None:
        """Parses `source`; raises EventError if it is not acceptable XML."""
        self.source = source
        self.root = parse_xml(source)
        walk = _Walk(self.root, len(source))
        self.paths: Paths = {path: tuple(values) for path, values in walk.paths.items()}
        self.attributes: Mapping[str, Value] = walk.attributes()
        self.nodes = walk.nodes
        self.widest = walk.widest
        self._numbers: dict[str, tuple[float, ...]] = {}
        self._remembered: dict[Condition, bool | None] = {}
        self._inline_cost = 0
        self._deferred: dict[Condition, int] = {}

    def numbers(self, path: str) -> tuple[float, ...]:
        """XPath's number() of everything that `path` selects, cached."""
        found = self._numbers.get(path)
        if found is None:
            found = self._numbers[path] = tuple(map(xpath_number, self.paths.get(path, ())))
        return found

    @property
    def deferred(self) -> list[Condition]:
        """Conditions that were requested but not evaluated, cheapest first."""
        return sorted(self._deferred, key=self._deferred.__getitem__)

    def defer(self, inline_cost: int) -> None:
        """From now on defers conditions that cost more than this.

        Matching then collects them: an index rules out most conditions without evaluating them, and
        the rest are listed in `deferred`. Once all of them are remembered, matching again is
        complete.
        """
        self._inline_cost = inline_cost

    def is_deferred(self, condition: Condition, cost: int) -> bool:
        """Whether the evaluation of `condition` is deferred; if so, lists it."""
        if not 0 < self._inline_cost < cost:
            return False
        self._deferred[condition] = cost
        return True

    def remember(self, condition: Condition, value: bool | None) -> None:
        """Stores an engine's result; None if the engine stopped without one."""
        was_deferred = self._deferred.pop(condition, None) is not None
        if was_deferred or len(self._remembered) < MAX_REMEMBERED:
            self._remembered[condition] = value

    def knows(self, condition: Condition) -> bool:
        return condition in self._remembered

    def recall(self, condition: Condition) -> bool | None:
        """The stored result of a condition that it `knows`."""
        return self._remembered[condition]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Document({self.source!r})"


def parse_xml(source: bytes, most: int = MAX_BYTES) -> etree._Element:
    """The root of `source`; raises EventError if it is not acceptable XML."""
    if len(source) > most:
        raise EventError("metadata", f"{len(source)} bytes of XML, at most {most} accepted")
    # The parser itself refuses entities, external files and oversized trees; any DTD is refused
    # below, because it can define entities and default values.
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        root = etree.fromstring(source, parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        raise EventError(
            "metadata", f"not well-formed XML at line {line}, column {column}: {error.msg}"
        ) from None
    except ValueError as error:
        raise EventError("metadata", f"not well-formed XML: {error}") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise EventError("metadata", "a document type declaration (DTD) is not accepted")
    return root


class _Walk:
    """Collects paths and attribute candidates, bounded in depth and number."""

    def __init__(self, root: etree._Element, source_bytes: int) -> None:
        self.paths: dict[str, list[str]] = {}
        self.nodes = 0
        self.widest = 1
        self._text = 0
        self._most_text = FREE_TEXT + MAX_GROWTH * source_bytes
        self._from_elements: dict[str, str] = {}
        self._from_xml_attributes: dict[str, str] = {}
        self._element(root, "", (), 1)

    def attributes(self) -> dict[str, Value]:
        merged = self._from_xml_attributes | self._from_elements
        return {name: infer(text) for name, text in merged.items()}

    def _element(
        self, element: etree._Element, parent: str, names: tuple[str, ...], depth: int
    ) -> str:
        """Records `element` and all below it; returns its string value."""
        tag = str(element.tag)
        self._count(depth, tag, parent)
        path = f"{parent}/{tag}"
        # Reserve indices now: document order is the order of opening tags, values come later.
        places = [self._reserve(path), self._reserve(f"//{tag}")]
        for key, text in element.attrib.items():
            self._xml_attribute(str(key), str(text), path, names)
        pieces = [element.text or ""]
        self.widest = max(self.widest, len(element))
        has_children = False
        for child in element:
            if isinstance(child.tag, str):
                has_children = True
                local = etree.QName(child).localname
                pieces.append(self._element(child, path, (*names, local), depth + 1))
            pieces.append(child.tail or "")
        value = "".join(pieces)
        self._measure(len(value))
        for values, place in places:
            values[place] = value
        if not has_children and value and names:
            self._from_elements.setdefault(".".join(names), value)
        return value

    def _xml_attribute(self, key: str, text: str, path: str, names: tuple[str, ...]) -> None:
        self._count(0, key, path)
        for where in (f"{path}/@{key}", f"//@{key}"):
            values, place = self._reserve(where)
            values[place] = text
        local = key.rpartition("}")[2]
        self._from_xml_attributes.setdefault(".".join((*names, local)), text)

    def _reserve(self, path: str) -> tuple[list[str], int]:
        values = self.paths.setdefault(path, [])
        values.append("")
        return values, len(values) - 1

    def _count(self, depth: int, tag: str, parent: str) -> None:
        if depth > MAX_DEPTH:
            raise EventError("metadata", f"elements nested deeper than {MAX_DEPTH}")
        if len(tag) > MAX_TAG_LENGTH:
            raise EventError("metadata", f"a name longer than {MAX_TAG_LENGTH} with its namespace")
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise EventError("metadata", f"more than {MAX_NODES} elements and attributes")
        self._measure(len(parent) + 2 * len(tag))

    def _measure(self, length: int) -> None:
        self._text += length
        if self._text > self._most_text:
            problem = f"paths and texts longer than {self._most_text} in all, for XML of this size"
            raise EventError("metadata", problem)
