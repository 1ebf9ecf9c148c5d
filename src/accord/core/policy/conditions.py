"""The different conditions of a book, each with a bit that says whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate


class Condition:
    """Two policies with the same one, however it is written, share its bit."""

    def __init__(self, bit: int, predicate: Predicate) -> None:
        self.bit: Final = bit
        self.predicate: Final = predicate


class Conditions:
    """By their canonical text."""

    def __init__(self) -> None:
        self._by_text: dict[str, Condition] = {}

    def add(self, predicate: Predicate | None) -> int:
        """The bit of `predicate`, 0 for none."""
        if predicate is None:
            return 0
        text = str(predicate)
        condition = self._by_text.get(text)
        if condition is None:
            condition = Condition(1 << len(self._by_text), predicate)
            self._by_text[text] = condition
        return condition.bit

    def get(self, predicate: Predicate) -> Condition:
        """The condition of a predicate that was added."""
        return self._by_text[str(predicate)]

    def all(self) -> list[Condition]:
        return list(self._by_text.values())

    @property
    def is_empty(self) -> bool:
        return not self._by_text

    def carry(self, others: Conditions, holding: int) -> int:
        """What holds by the bits of `others`, in these; a condition they lack does not hold."""
        bits = 0
        for text, condition in self._by_text.items():
            other = others._by_text.get(text)
            if other is not None and other.bit & holding:
                bits |= condition.bit
        return bits


def bits_of(
    conditions: Iterable[Condition], values: Mapping[str, Value], document: Document | None = None
) -> int:
    """The bits of those that hold: unknown is not enough."""
    bits = 0
    for condition in conditions:
        if condition.predicate.evaluate(values, document) is True:
            bits |= condition.bit
    return bits
