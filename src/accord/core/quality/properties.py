"""Properties of information: each has an ordered domain and a better end.

The domain is a range of numbers or an ordered set of levels. A value is a number or the name of a
level, and means nothing by itself: 300 is better than 700 for a latency and worse for a rate, and
levels are not in alphabetical order. Values therefore compare only through their property, by their
*score*: a number that is higher for better values, whatever the direction.

Measured properties may change from hop to hop: every hop adds to a latency and reduces a
reliability. All hop effects are monotonic, so what is better before a hop is no worse after it.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator
from typing import Final, TypeGuard

import msgspec

from accord.core.model.errors import AccordError


class QualityError(AccordError):
    """The input is refused: `place` is its location, `problem` what is wrong or was expected."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


MAX_NAME: Final = 64
MAX_UNIT: Final = 16
MAX_LEVELS: Final = 1_000
MAX_PROPERTIES: Final = 1_000
MAX_NUMBER: Final = 1e15  # sums of such numbers are finite and exact enough

Value = float | str

# Names of other members of an expectation; `suspended` occurs in stored ones.
RESERVED: Final = ("id", "publishers", "suspended", "utility")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class Better(enum.Enum):
    HIGHER = "higher"
    LOWER = "lower"


class HopEffect(enum.Enum):
    """Effect of a hop on a value, given the link's value."""

    KEEP = "keep"
    ADD = "add"  # a latency
    MULTIPLY = "multiply"  # a share of the highest value, such as a reliability in percent
    WORST = "worst"  # the worse of both


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """Either `levels`, lowest first, or a range from `lowest` to `highest`.

    If `is_measured`, nodes determine it and publishers cannot declare it.
    """

    name: str
    better: Better
    levels: tuple[str, ...] = ()
    lowest: float = 0.0
    highest: float = math.inf
    unit: str = ""
    over_hops: HopEffect = HopEffect.KEEP
    is_measured: bool = False

    def __post_init__(self) -> None:
        if problem := problem_with_name(self.name):
            raise QualityError("a property's name", problem)
        if self.name in RESERVED:
            raise QualityError(self.name, "is no property's name: expectations have it already")
        is_plain = self.unit.isprintable() and self.unit == self.unit.strip()
        if len(self.unit) > MAX_UNIT or not is_plain:
            problem = f"unit: expected at most {MAX_UNIT} characters, got {shown(self.unit)}"
            raise QualityError(self.name, problem)
        problem = self._problem_with_levels() if self.levels else self._problem_with_range()
        if problem:
            raise QualityError(self.name, problem)

    @property
    def domain(self) -> str:
        """The domain in words, for errors and screens."""
        if self.levels:
            return " < ".join(self.levels)
        return f"{shown(self.lowest)}..{shown(self.highest)}"

    def position(self, value: Value) -> float:
        """Position of `value` in the domain; raises QualityError if it is outside."""
        if self.levels:
            if isinstance(value, str) and value in self.levels:
                return float(self.levels.index(value))
            expected = f"one of {', '.join(self.levels)}"
        else:
            if _is_number(value) and self.lowest <= float(value) <= self.highest:
                return float(value)
            expected = f"a number within {self.domain}"
        raise QualityError(self.name, f"expected {expected}, got {shown(value)}")

    def at(self, position: float) -> Value:
        """The value at a position."""
        return self.levels[int(position)] if self.levels else position

    def score(self, value: Value) -> float:
        position = self.position(value)
        return position if self.better is Better.HIGHER else -position

    def from_score(self, score: float) -> Value:
        return self.at(score if self.better is Better.HIGHER else -score)

    def is_better(self, one: Value, other: Value) -> bool:
        return self.score(one) > self.score(other)

    def read(self, text: str) -> Value:
        """Parses a value."""
        value: Value = text.strip()
        if not self.levels:
            number = read_number(text)
            value = text if number is None else number
        self.position(value)
        return value

    def over_hop(self, value: Value, link: Value) -> Value:
        """The value after a link whose own value is `link`."""
        here, there = self.position(value), self.position(link)
        if self.over_hops is HopEffect.ADD:
            here = self._clamped(here + there)
        elif self.over_hops is HopEffect.MULTIPLY:
            here = self._clamped(here * there / self.highest)
        elif self.over_hops is HopEffect.WORST and self.is_better(value, link):
            here = there
        return self.at(here)

    def before_hop(self, value: Value, link: Value) -> Value:
        """The value needed before a link to have `value` after it, or the best of the domain."""
        there, hop = self.position(value), self.position(link)
        if self.over_hops is HopEffect.ADD:
            there = self._clamped(there - hop)
        elif self.over_hops is HopEffect.MULTIPLY:
            there = self._clamped(there * self.highest / hop) if hop else self.highest
        return self.at(there)

    def _clamped(self, position: float) -> float:
        return min(max(position, self.lowest), self.highest)

    def _problem_with_levels(self) -> str | None:
        if len(self.levels) > MAX_LEVELS:
            return f"{len(self.levels)} levels, at most {MAX_LEVELS} accepted"
        if len(set(self.levels)) < len(self.levels):
            return f"levels: expected each once, got {self.domain}"
        for level in self.levels:
            if problem := problem_with_name(level):
                return f"levels: {problem}"
        if self.over_hops in (HopEffect.ADD, HopEffect.MULTIPLY):
            return f"over hops: levels don't {self.over_hops.value}; expected keep or worst"
        return None

    def _problem_with_range(self) -> str | None:
        for bound in (self.lowest, self.highest):
            if math.isnan(bound) or (math.isfinite(bound) and abs(bound) > MAX_NUMBER):
                limit = shown(MAX_NUMBER)
                return f"range: expected numbers up to {limit} or inf, got {self.domain}"
        if self.lowest >= self.highest:
            return f"range: expected the lower number first, got {self.domain}"
        if self.over_hops is HopEffect.MULTIPLY and (
            self.lowest < 0 or not math.isfinite(self.highest)
        ):
            return f"over hops: to multiply expected a range such as 0..100, got {self.domain}"
        return None


class PropertyRegistry:
    """All defined properties, by name."""

    def __init__(self, properties: tuple[Property, ...] | None = None) -> None:
        self._properties: dict[str, Property] = {}
        for each in SHIPPED if properties is None else properties:
            self.define(each)

    def define(self, property_: Property) -> None:
        """Adds or replaces a property; the caller makes sure that a replaced one is unused."""
        if property_.name not in self._properties and len(self._properties) >= MAX_PROPERTIES:
            raise QualityError(property_.name, f"{MAX_PROPERTIES} properties are defined already")
        self._properties[property_.name] = property_

    def remove(self, name: str) -> None:
        self.get(name)
        del self._properties[name]

    def get(self, name: str) -> Property:
        found = self._properties.get(name)
        if found is None:
            known = ", ".join(self._properties)
            problem = f"no such property; expected one of {known}, or define it"
            raise QualityError(shown(name), problem)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __iter__(self) -> Iterator[Property]:
        return iter(self._properties.values())

    def __len__(self) -> int:
        return len(self._properties)

    def check_invariants(self) -> None:
        assert len(self._properties) <= MAX_PROPERTIES
        assert all(name == each.name for name, each in self._properties.items())


def problem_with_name(name: str) -> str | None:
    if len(name) > MAX_NAME:
        return f"{len(name)} characters, at most {MAX_NAME} accepted"
    if not _NAME.fullmatch(name):
        return f"expected a letter, then letters, digits and _ . -, got {shown(name)}"
    return None


def read_number(text: str) -> float | None:
    """Parses a number as operators write it, also `inf`; None if `text` is not a number."""
    bare = text.strip()
    if len(bare) > 32 or "_" in bare:
        return None
    try:
        number = float(bare)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def shown(value: object) -> str:
    """Formats a value for errors and files: exact, and no longer than necessary."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= MAX_NUMBER or math.isinf(value)


SHIPPED: Final = (
    Property(name="rate", better=Better.HIGHER, unit="Hz"),
    Property(name="confidence", better=Better.HIGHER, highest=100.0, unit="%"),
    Property(name="precision", better=Better.HIGHER, highest=100.0, unit="%"),
    Property(
        name="latency", better=Better.LOWER, unit="ms", over_hops=HopEffect.ADD, is_measured=True
    ),
    # Age of the information in an event: it grows with each hop.
    Property(name="freshness", better=Better.LOWER, unit="ms", over_hops=HopEffect.ADD),
    Property(name="trust", better=Better.HIGHER, levels=("none", "low", "medium", "high")),
    Property(
        name="order",
        better=Better.HIGHER,
        levels=("none", "publisher", "causal", "total"),
        over_hops=HopEffect.WORST,
        is_measured=True,
    ),
    Property(
        name="reliability",
        better=Better.HIGHER,
        highest=100.0,
        unit="%",
        over_hops=HopEffect.MULTIPLY,
        is_measured=True,
    ),
)
