"""Dictionary encoding of names and value sets, so that whole columns can be compared at once.

Codes are reference-counted: assigned at the first use, and free again after the last. Most sets
that are not numeric ranges are a single text (`name = 'DEU'`); these are kept sorted, so that all
in a range of texts are found without scanning the rest. Others (`IN`, `<>`, prefixes, `IS NULL`)
are few in practice; `OTHERS` limits them per attribute.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.range_sets import RangeSets, is_related
from accord.core.model.values import Kind
from accord.core.predicates.value_sets import Range, ValueSet

OTHERS: Final = 1_024
UNKNOWN: Final = -1
_BLOCK: Final = 512

Ints = NDArray[np.int64]


class ValueDictionary:
    """Codes from 0 for hashable values; small, because free ones are reused."""

    __slots__ = ("_free", "_names", "_numbers", "_users")

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._names: list[Hashable] = []
        self._users: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Upper bound of the codes."""
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[Hashable, int]]:
        return iter(self._numbers.items())

    @property
    def used(self) -> int:
        return len(self._numbers)

    def get(self, name: Hashable) -> int:
        return self._numbers.get(name, UNKNOWN)

    def name(self, number: int) -> Hashable:
        return self._names[number]

    def take(self, name: Hashable) -> int:
        """Return the code, and count one more use."""
        number = self._numbers.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                self._users.append(0)
            self._numbers[name] = number
        self._users[number] += 1
        return number

    def give_back(self, number: int) -> bool:
        """Count one use less; returns whether it was the last."""
        self._users[number] -= 1
        if self._users[number]:
            return False
        del self._numbers[self._names[number]]
        self._names[number] = None
        self._free.append(number)
        return True

    def check_invariants(self) -> None:
        assert len(self._names) == len(self._users) == len(self._numbers) + len(self._free)
        for name, number in self._numbers.items():
            assert self._names[number] == name
            assert self._users[number] > 0


class SetDictionary:
    """Codes of the value sets that filters allow for one attribute."""

    def __init__(self) -> None:
        self._codes = ValueDictionary()
        self._texts = _Texts()
        self._others: dict[ValueSet, int] = {}
        self._pieces: RangeSets | None = None  # of `_others`, built on demand

    def __len__(self) -> int:
        return self._codes.used

    @property
    def is_full(self) -> bool:
        return len(self._others) >= OTHERS

    def has_room(self, allowed: ValueSet) -> bool:
        return _text(allowed) is not None or allowed in self._others or not self.is_full

    def set_of(self, code: int) -> ValueSet:
        allowed = self._codes.name(code)
        assert isinstance(allowed, ValueSet)
        return allowed

    def take(self, allowed: ValueSet) -> int:
        is_new = self._codes.get(allowed) == UNKNOWN
        code = self._codes.take(allowed)
        if is_new:
            text = _text(allowed)
            if text is None:
                self._others[allowed] = code
                self._pieces = None
            else:
                self._texts.add(text, code)
        return code

    def give_back(self, code: int) -> None:
        allowed = self.set_of(code)
        if self._codes.give_back(code):
            text = _text(allowed)
            if text is None:
                del self._others[allowed]
                self._pieces = None
            else:
                self._texts.remove(text)

    def related(self, relation: Relation, asking: ValueSet) -> Ints:
        """Return the codes of the sets related to `asking`, ascending."""
        parts = [self._related_others(relation, asking)]
        if _text(asking) is not None:
            code = self._codes.get(asking)
            parts += [np.array([code], dtype=np.int64)] if code != UNKNOWN else []
        elif relation is not Relation.COVERING:
            parts += (
                codes for part in asking.ranges[Kind.STRING] for codes in self._texts.within(part)
            )
        return np.sort(np.concatenate(parts))

    def _related_others(self, relation: Relation, asking: ValueSet) -> Ints:
        text = _text(asking)
        if text is None:
            if self._pieces is None:
                self._pieces = RangeSets(self._others)
            found = self._pieces.related(relation, asking)
            if found is not None:
                return found
            codes = [
                code
                for allowed, code in self._others.items()
                if is_related(relation, asking, allowed)
            ]
        elif relation is Relation.COVERED:
            codes = []  # the others hold more than one text
        else:
            codes = [code for allowed, code in self._others.items() if text in allowed]
        return np.array(codes, dtype=np.int64)

    def check_invariants(self) -> None:
        self._codes.check_invariants()
        self._texts.check_invariants()
        assert len(self._texts) + len(self._others) == self._codes.used


def _text(allowed: ValueSet) -> str | None:
    """Return the single text that it allows; None if it is of another form."""
    ranges = allowed.ranges[Kind.STRING]
    if len(ranges) != 1 or allowed.only_kind() is not Kind.STRING:
        return None
    low, high = ranges[0]
    return low if high == low + "\0" else None


class _Block:
    __slots__ = ("codes", "texts")

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.codes: Ints | None = None  # of the texts, built on demand


class _Texts:
    """Sorted texts with their codes, in blocks."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._lasts: list[str] = []  # the last text of each block
        self._codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, text: str, code: int) -> None:
        self._codes[text] = code
        if not self._blocks:
            self._blocks.append(_Block([]))
            self._lasts.append(text)
        at = min(bisect_left(self._lasts, text), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block.texts, text)
        block.codes = None
        self._lasts[at] = block.texts[-1]
        if len(block.texts) > _BLOCK:
            half = len(block.texts) // 2
            self._blocks[at : at + 1] = [_Block(block.texts[:half]), _Block(block.texts[half:])]
            self._lasts[at : at + 1] = [block.texts[half - 1], block.texts[-1]]

    def remove(self, text: str) -> None:
        del self._codes[text]
        at = bisect_left(self._lasts, text)
        block = self._blocks[at]
        del block.texts[bisect_left(block.texts, text)]
        block.codes = None
        if block.texts:
            self._lasts[at] = block.texts[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def within(self, part: Range) -> Iterator[Ints]:
        """Yield the codes of all texts in a range."""
        low, high = part
        for at in range(bisect_left(self._lasts, low), len(self._blocks)):
            block = self._blocks[at]
            texts = block.texts
            if high is not None and texts[0] >= high:
                return
            if block.codes is None:
                block.codes = np.array([self._codes[text] for text in texts], dtype=np.int64)
            start = bisect_left(texts, low)
            end = len(texts) if high is None else bisect_left(texts, high)
            yield block.codes[start:end]

    def check_invariants(self) -> None:
        texts = [text for block in self._blocks for text in block.texts]
        assert texts == sorted(self._codes)
        assert self._lasts == [block.texts[-1] for block in self._blocks]
