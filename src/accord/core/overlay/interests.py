"""What a node needs of the others: all that its clients subscribed to, said as shortly as possible.

A need is a filter, with a predicate or without. What another need covers is not announced: a filter
within a wider one without a predicate, and a predicate within another of the same filter. Where a
filter has many predicates the filter alone is announced: too much may come, never too little.

There is a budget for what is announced. Where it does not do, needs are widened (`widening`), as if
somebody wished the wider one as well, until there is room again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from accord.core.model.channels import ChannelMap, filter_covers
from accord.core.overlay.interest_aggregation import AnnouncedFilter, aggregate
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.relations import covers

__all__ = [
    "BUDGET",
    "MANY",
    "MAX_CONDITION_BYTES",
    "MAX_FILTER_BYTES",
    "MAX_LEVELS",
    "NARROW_US",
    "SETTLE_US",
    "InterestTable",
    "Need",
    "PredicateText",
    "size_of",
]

MANY: Final = 32  # predicates of a filter
BUDGET: Final = 512 << 10  # bytes of all that is announced
SETTLE_US: Final = 5_000_000  # a wider need must stand for so long until narrower ones go
NARROW_US: Final = 10_000_000  # it is seen so often whether there is room again
_BASE_BYTES: Final = 440  # of a fact that is a need, without its texts
MAX_LEVELS: Final = 32  # of a filter, beyond which it is told as `…/#`
MAX_FILTER_BYTES: Final = 1_024
MAX_CONDITION_BYTES: Final = 16_384  # beyond that the filter alone is told
_LOOKED: Final = 16_384  # filters, each time it is seen whether there is room again
_SOON: Final = -1

PredicateText = tuple[str, str]  # a selector and an XPath, of which one at most is given
_NONE: Final[PredicateText] = ("", "")


class Need(msgspec.Struct, frozen=True, array_like=True):
    """As nodes tell it to each other."""

    filter: str
    where: str = ""
    xpath: str = ""


class _FilterInterest:
    """Of one filter: how many subscriptions have which condition, and what is announced of them."""

    def __init__(self) -> None:
        self.counts: dict[PredicateText, int] = {}
        self.predicates: dict[PredicateText, Predicate] = {}
        self.widest: dict[PredicateText, bool] = {}  # those that no other covers

    def is_plain(self) -> bool:
        return _NONE in self.counts or len(self.widest) > MANY

    def needs(self, pattern: str, *, but_one: bool = False) -> list[Need]:
        """How to announce it; `but_one`: if one less wished it without condition."""
        is_wished = _NONE in self.counts and (not but_one or self.counts[_NONE] > 1)
        if is_wished or len(self.widest) > MANY:
            return [Need(pattern)]
        return [Need(pattern, where, xpath) for where, xpath in self.widest]

    def add(self, condition: PredicateText, predicate: Predicate | None) -> bool:
        """False where it was there already."""
        self.counts[condition] = self.counts.get(condition, 0) + 1
        if self.counts[condition] > 1:
            return False
        if predicate is not None:
            self.predicates[condition] = predicate
            self._widen(condition, predicate)
        return True

    def remove(self, condition: PredicateText) -> bool:
        """False where others still wish the same."""
        self.counts[condition] -= 1
        if self.counts[condition]:
            return False
        del self.counts[condition]
        if self.predicates.pop(condition, None) is not None and condition in self.widest:
            del self.widest[condition]
            for each, predicate in self.predicates.items():
                if each not in self.widest:
                    self._widen(each, predicate)
        return True

    def _widen(self, condition: PredicateText, predicate: Predicate) -> None:
        if len(self.widest) <= MANY:  # beyond that nobody asks which
            for other in self.widest:
                if covers(self.predicates[other], predicate):
                    return
            for other in list(self.widest):
                if covers(predicate, self.predicates[other]):
                    del self.widest[other]
        self.widest[condition] = True


class InterestTable:
    """`changes` has what is to be announced (or taken back: None) under which key.

    All that is announced takes `budget` bytes at most.
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.announced: dict[str, dict[Need, str]] = {}  # by filter: under which key
        self.size = 0  # of all that is announced
        self._budget = budget
        self._wishes: dict[str, _FilterInterest] = {}
        self._wide: ChannelMap[str] = ChannelMap()  # filters without predicate that may cover
        self._settling: dict[str, int] = {}  # of those: when what they cover is taken back
        self._covering: dict[str, dict[str, None]] = {}  # what is not announced because of them
        self._covered: dict[str, str] = {}  # by which
        self._widened: dict[str, None] = {}  # nobody wishes them: for want of room
        self._dirty: dict[str, None] = {}
        self._is_less = False  # than when it was last seen whether there is room again
        self._narrow_us = 0  # not before
        self._last_key = 0

    def add(self, pattern: str, condition: PredicateText, predicate: Predicate | None) -> None:
        if not pattern.startswith("$"):  # what does stays at its node
            self._add(*_bounded(pattern, condition, predicate))

    def remove(self, pattern: str, condition: PredicateText) -> None:
        if not pattern.startswith("$"):
            self._is_less = True
            bounded, condition, _ = _bounded(pattern, condition, None)
            self._remove(bounded, condition)

    @property
    def is_widened(self) -> bool:
        return bool(self._widened)

    def widened(self) -> int:
        """How many filters are not announced as they are, for want of room."""
        found = 0
        for pattern in self._widened:
            wide = self._covered.get(pattern)
            if wide is None or wide in self._widened:
                found += len(self._covering.get(pattern, ())) - (wide is not None)
                found += len(self._wishes[pattern].counts) > 1
        return found

    def has_changed(self) -> bool:
        """Whether something has to be announced soon."""
        return bool(self._dirty)

    def next_due_us(self) -> int | None:
        """When to ask for changes next, though nobody wishes anything else."""
        due_us = min(self._settling.values()) if self._settling else None
        if self._widened and self._is_less:
            return self._narrow_us if due_us is None else min(due_us, self._narrow_us)
        return due_us

    def changes(self, now_us: int) -> list[tuple[str, Need | None]]:
        """Since the last time; what is new comes before what is taken back."""
        if not (self._dirty or self._settling or self._widened or self.size > self._budget):
            return []
        for wide, due_us in list(self._settling.items()):
            if due_us == _SOON:
                self._settling[wide] = now_us + SETTLE_US
            elif due_us <= now_us:
                self._settle(wide)
        new: dict[str, Need] = {}
        gone: list[str] = []
        self._announce(new, gone)
        if self._widened and self._is_less and now_us >= self._narrow_us:
            self._narrow_us = now_us + NARROW_US
            self._is_less = False
            self._narrow()
            self._announce(new, gone)
        if self.size > self._budget:
            for wide in list(self._settling):
                self._settle(wide)
            self._announce(new, gone)
        if self.size > self._budget:
            self._widen(self._told(self.announced), self.size - _part(self._budget, 7))
            self._announce(new, gone)
            self._narrow_us = now_us + NARROW_US
        return [*new.items(), *((key, None) for key in gone)]

    def check_invariants(self) -> None:
        """All that is wished is covered by something that is announced, and that fits."""
        assert self._covered == {
            each: wide for wide, covered in self._covering.items() for each in covered
        }
        if self._dirty:
            return
        sizes = (size_of(need) for needs in self.announced.values() for need in needs)
        assert self.size == sum(sizes) <= self._budget
        for pattern, wishes in self._wishes.items():
            for condition in wishes.counts:
                assert any(
                    self._says(need, pattern, condition)
                    for needs in self.announced.values()
                    for need in needs
                )

    def _says(self, need: Need, pattern: str, condition: PredicateText) -> bool:
        """Whether it includes all that a wish with that condition means."""
        said = (need.where, need.xpath)
        if not filter_covers(need.filter, pattern):
            return False
        if said in (_NONE, condition):
            return True
        predicates = self._wishes[pattern].predicates
        return condition in predicates and bool(
            covers(self._wishes[need.filter].predicates[said], predicates[condition])
        )

    # ------------------------------------------------------------------------------------- wishes

    def _add(self, pattern: str, condition: PredicateText, predicate: Predicate | None) -> None:
        wishes = self._wishes.setdefault(pattern, _FilterInterest())
        was_plain = wishes.is_plain()
        if wishes.add(condition, predicate):
            self._changed(pattern, wishes, was_plain=was_plain)

    def _remove(self, pattern: str, condition: PredicateText) -> None:
        wishes = self._wishes[pattern]
        was_plain = wishes.is_plain()
        if wishes.remove(condition):
            if not wishes.counts:
                del self._wishes[pattern]
            self._changed(pattern, wishes, was_plain=was_plain)

    def _changed(self, pattern: str, wishes: _FilterInterest, *, was_plain: bool) -> None:
        self._dirty[pattern] = None
        is_plain = bool(wishes.counts) and wishes.is_plain()
        if is_plain == was_plain or not ("+" in pattern or "#" in pattern):
            return
        if is_plain:
            self._wide.set(pattern, pattern)
            # What it covers is taken back when it has stood for a while: who comes and goes costs
            # no more than that.
            self._settling[pattern] = _SOON
        else:
            self._wide.remove(pattern)
            self._settling.pop(pattern, None)
            for each in self._covering.pop(pattern, ()):
                del self._covered[each]
                self._dirty[each] = None

    # ---------------------------------------------------------------------------------- announcing

    def _announce(self, new: dict[str, Need], gone: list[str]) -> None:
        for pattern in self._dirty:
            before, wanted = self.announced.pop(pattern, {}), self._wanted(pattern)
            now: dict[Need, str] = {}
            for need in wanted:
                key = before.pop(need, "")
                if not key:
                    self._last_key += 1
                    key = str(self._last_key)
                    new[key] = need
                    self.size += size_of(need)
                now[need] = key
            for need, key in before.items():
                self.size -= size_of(need)
                if new.pop(key, None) is None:
                    gone.append(key)
            if now:
                self.announced[pattern] = now
        self._dirty.clear()

    def _wanted(self, pattern: str) -> list[Need]:
        """What is to be announced of one filter."""
        wide = self._covered.pop(pattern, None)
        if wide is not None:
            del self._covering[wide][pattern]
        wishes = self._wishes.get(pattern)
        if wishes is None:
            return []
        wide = self._cover_of(pattern)
        if wide is not None:
            self._covered[pattern] = wide
            self._covering.setdefault(wide, {})[pattern] = None
            return []
        return wishes.needs(pattern)

    def _cover_of(self, pattern: str, but: str = "") -> str | None:
        # The map takes wildcards of `pattern` for names, and so may find too many.
        for wide in self._wide.select(pattern):
            if wide not in (pattern, but) and filter_covers(wide, pattern):
                return wide
        return None

    def _settle(self, wide: str) -> None:
        """Take back what it covers."""
        self._settling.pop(wide, None)
        for pattern in self.announced:
            if pattern != wide and filter_covers(wide, pattern):
                self._dirty[pattern] = None

    # ---------------------------------------------------------------------------- for want of room

    def _told(self, filters: Iterable[str]) -> list[AnnouncedFilter]:
        """What of them is to be announced where nothing covers them."""
        return [
            AnnouncedFilter(
                each,
                sum(size_of(need) for need in self._wishes[each].needs(each)),
                size_of(Need(each)),
            )
            for each in filters
            if each in self._wishes
        ]

    def _widen(self, told: list[AnnouncedFilter], excess: int) -> None:
        for pattern in aggregate(told, excess, _BASE_BYTES):
            self._tell_wider(pattern)

    def _tell_wider(self, pattern: str) -> None:
        assert pattern not in self._widened
        self._widened[pattern] = None
        self._add(pattern, _NONE, None)
        if pattern in self._settling:
            self._settle(pattern)

    def _narrow(self) -> None:
        """Say more exactly what was widened, as far as there is room."""
        size, looked = self.size, 0
        for pattern in list(self._widened):
            if pattern in self._covered:  # it is not announced itself
                own = self._wishes[pattern].needs(pattern, but_one=True)
                if not own and not self._covering.get(pattern):
                    self._tell_as_wished(pattern)
                continue
            looked += len(self._covering.get(pattern, ()))
            if looked > _LOOKED:
                self._is_less = True
                return
            del self._widened[pattern]
            self._widened[pattern] = None  # last: the next time others come first
            size = self._narrow_one(pattern, size)

    def _narrow_one(self, pattern: str, size: int) -> int:
        """Gives the size of all that is announced then."""
        hidden = self._covering.get(pattern, ())
        told = self._told(each for each in hidden if self._cover_of(each, but=pattern) is None)
        own = self._wishes[pattern].needs(pattern, but_one=True)
        plain_size = size_of(Need(pattern))
        if own:
            told.append(AnnouncedFilter(pattern, sum(map(size_of, own)), plain_size))
        after = size - plain_size + sum(each.size for each in told)
        most = max(size, _part(self._budget, 6))
        within = aggregate(told, after - most, _BASE_BYTES) if after > most else []
        if any(each == pattern or not filter_covers(pattern, each) for each in within):
            return size
        for each in within:
            self._tell_wider(each)
        self._tell_as_wished(pattern)
        return min(after, most)

    def _tell_as_wished(self, pattern: str) -> None:
        del self._widened[pattern]
        self._remove(pattern, _NONE)
        self._is_less = True  # perhaps others can be, too


def _bounded(
    pattern: str, condition: PredicateText, predicate: Predicate | None
) -> tuple[str, PredicateText, Predicate | None]:
    """The same, or something wider that takes no more than its share."""
    names = pattern.split("/", MAX_LEVELS)
    if len(names) > MAX_LEVELS or len(pattern.encode()) > MAX_FILTER_BYTES:
        del names[MAX_LEVELS:]
        while names and len("/".join(names).encode()) > MAX_FILTER_BYTES:
            names.pop()
        return "/".join([*names, "#"]), _NONE, None
    if sum(len(text.encode()) for text in condition) > MAX_CONDITION_BYTES:
        return pattern, _NONE, None
    return pattern, condition, predicate


def size_of(need: Need) -> int:
    """What it takes as a fact at most."""
    return _BASE_BYTES + sum(len(text.encode()) for text in (need.filter, need.where, need.xpath))


def _part(budget: int, eighths: int) -> int:
    return budget * eighths // 8
