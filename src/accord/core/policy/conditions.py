"""The distinct conditions of a policy set, each with a bit that is set while it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate


class Condition:
    """One condition; policies with equal canonical conditions share its bit."""

    def __init__(self, bit: int, predicate: Predicate) -> None:
        self.bit: Final = bit
        self.predicate: Final = predicate


class Conditions:
    """Conditions by canonical text."""

    def __init__(self) -> None:
        self._by_text: dict[str, Condition] = {}

    def add(self, predicate: Predicate | None) -> int:
        """Returns the bit of `predicate`, 0 for None."""
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
        """Translates the bits of `others` to these; a condition that they lack does not hold."""
        bits = 0
        for text, condition in self._by_text.items():
            other = others._by_text.get(text)
            if other is not None and other.bit & holding:
                bits |= condition.bit
        return bits


def bits_of(
    conditions: Iterable[Condition], values: Mapping[str, Value], document: Document | None = None
) -> int:
    """The bits of conditions that are true; unknown does not count."""
    bits = 0
    for condition in conditions:
        if condition.predicate.evaluate(values, document) is True:
            bits |= condition.bit
    return bits
