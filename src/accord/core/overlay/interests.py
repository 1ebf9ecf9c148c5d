"""Local interests: the clients' subscriptions, reduced and aggregated for announcement.

An interest is a filter with an optional predicate. A covered interest is not announced: a filter
inside a wider one without predicate, or a predicate covered by another on the same filter. A filter
with many predicates is announced without them. So too much may arrive, never too little.

Announcements have a byte budget. Beyond it, interests are aggregated until there is room again, as
IP prefixes are: as if a client had subscribed to the covering filter.

A wider interest is always correct: more events arrive, and the receiving node's router selects. So
predicates are omitted, or all interests below a common prefix are replaced by one, `a/b/#`. Filters
form a tree of their levels. Interests are merged only at the lowest forks, so that only adjacent
ones are widened; a fork above becomes a candidate once it is the lowest. The candidate that saves
most goes first: crowded prefixes are aggregated, sparse ones keep their exact interests.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from accord.core.model.channels import ChannelMap, filter_covers
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.relations import covers


class AnnouncedFilter(msgspec.Struct, frozen=True):
    """A filter with the size of its announcements, and the size without predicates."""

    filter: str
    size: int
    plain_size: int


class _Fork:
    """A node of the tree, with totals of the filters at and below it."""

    __slots__ = ("announced", "children", "count", "forks", "is_merged", "name", "parent", "size")

    def __init__(self, name: str, parent: _Fork | None) -> None:
        self.name = name
        self.parent = parent
        self.children: dict[str, _Fork] = {}
        self.announced: AnnouncedFilter | None = None
        self.is_merged = False  # all filters at and below it were merged
        self.size = 0
        self.count = 0  # of filters
        self.forks = 0  # direct children with more than one filter

    def filter(self) -> str:
        """The filter that selects everything below."""
        names = ["#"]
        place = self
        while place.parent is not None:
            names.append(place.name)
            place = place.parent
        return "/".join(reversed(names))


# Bytes saved (negative), resulting filter, whether it merges a fork, and the tree node.
_Candidate = tuple[int, str, bool, _Fork]


def aggregate(announced: Iterable[AnnouncedFilter], excess: int, base_size: int) -> list[str]:
    """Filters to announce instead, without predicates, that save `excess` bytes.

    A filter takes `base_size` bytes besides its text. Saves as much as possible if not enough.
    """
    root = _Fork("", None)
    heap: list[_Candidate] = []
    for each in announced:
        place = _insert(root, each)
        if each.size > each.plain_size:
            heap.append((each.plain_size - each.size, each.filter, False, place))
    heap += _lowest_forks(root, base_size)
    heapify(heap)
    found: dict[str, _Fork] = {}
    while excess > 0 and heap:
        _, name, is_fork, place = heappop(heap)
        if _is_below_merged(place):
            continue
        # A fork saves less than computed if predicates below it were omitted since.
        saved = place.size - base_size - len(name.encode())
        if not is_fork:
            assert place.announced is not None
            saved = place.announced.size - place.announced.plain_size
        _subtract_size(place, saved)
        above = _merge(place) if is_fork else None
        if above is not None:
            heappush(heap, _candidate(above, base_size))
        excess -= saved
        found[name] = place
    return [name for name, place in found.items() if not _is_below_merged(place)]


def _insert(root: _Fork, announced: AnnouncedFilter) -> _Fork:
    place = root
    path = [root]
    for name in announced.filter.split("/"):
        below = place.children.get(name)
        if below is None:
            below = place.children[name] = _Fork(name, place)
        place = below
        path.append(place)
    place.announced = announced
    for each in path:
        each.size += announced.size
        each.count += 1
        if each.count == 2 and each.parent is not None:
            each.parent.forks += 1
    return place


def _lowest_forks(root: _Fork, base_size: int) -> list[_Candidate]:
    found = []
    places = [root]
    while places:
        place = places.pop()
        if place.count > 1 and not place.forks:
            found.append(_candidate(place, base_size))
        else:
            places += [each for each in place.children.values() if each.count > 1]
    return found


def _candidate(fork: _Fork, base_size: int) -> _Candidate:
    name = fork.filter()
    if fork.parent is None:
        return 0, name, True, fork  # `#` itself is the last resort
    return base_size + len(name.encode()) - fork.size, name, True, fork


def _is_below_merged(place: _Fork) -> bool:
    above = place.parent
    while above is not None:
        if above.is_merged:
            return True
        above = above.parent
    return False


def _subtract_size(place: _Fork, saved: int) -> None:
    up: _Fork | None = place
    while up is not None:
        up.size -= saved
        up = up.parent


def _merge(fork: _Fork) -> _Fork | None:
    """Merge the fork into one interest; returns an upper fork that is now a lowest one."""
    fork.is_merged = True
    gone, fork.count, fork.forks = fork.count - 1, 1, 0
    last: _Fork | None = None
    below, place = fork, fork.parent
    while place is not None:
        place.count -= gone
        if below.count == 1:
            place.forks -= 1
            if place.count > 1 and not place.forks:
                last = place
        below, place = place, place.parent
    return last


__all__ = [
    "BUDGET",
    "MANY",
    "MAX_CONDITION_BYTES",
    "MAX_FILTER_BYTES",
    "MAX_LEVELS",
    "NARROW_US",
    "SETTLE_US",
    "Interest",
    "InterestTable",
    "PredicateText",
    "size_of",
]

MANY: Final = 32  # predicates announced per filter; beyond, the filter alone
BUDGET: Final = 512 << 10  # bytes of all announcements
SETTLE_US: Final = 5_000_000  # age of a wider interest before covered ones are withdrawn
NARROW_US: Final = 10_000_000  # interval between attempts to undo aggregation
_BASE_BYTES: Final = 440  # of an interest's state record, without its texts
MAX_LEVELS: Final = 32  # of a filter; a deeper one is announced as `…/#`
MAX_FILTER_BYTES: Final = 1_024
MAX_CONDITION_BYTES: Final = 16_384  # with a longer predicate, the filter alone is announced
_MAX_NARROW_SCAN: Final = 16_384  # filters examined per attempt to undo aggregation
_UNSCHEDULED: Final = -1

PredicateText = tuple[str, str]  # a selector and an XPath, at most one of them non-empty
_NONE: Final[PredicateText] = ("", "")


class Interest(msgspec.Struct, frozen=True, array_like=True):
    """An interest, as announced between nodes."""

    filter: str
    where: str = ""
    xpath: str = ""


class _FilterInterest:
    """Subscriptions on one filter: their count by predicate, and the predicates to announce."""

    def __init__(self) -> None:
        self.counts: dict[PredicateText, int] = {}
        self.predicates: dict[PredicateText, Predicate] = {}
        self.widest: dict[PredicateText, bool] = {}  # predicates that no other covers

    def is_plain(self) -> bool:
        return _NONE in self.counts or len(self.widest) > MANY

    def interests(self, pattern: str, *, excluding_one: bool = False) -> list[Interest]:
        """Interests to announce;

        `excluding_one`: as if one subscription without predicate fewer.
        """
        is_wished = _NONE in self.counts and (not excluding_one or self.counts[_NONE] > 1)
        if is_wished or len(self.widest) > MANY:
            return [Interest(pattern)]
        return [Interest(pattern, where, xpath) for where, xpath in self.widest]

    def add(self, condition: PredicateText, predicate: Predicate | None) -> bool:
        """False if another subscription already has this predicate."""
        self.counts[condition] = self.counts.get(condition, 0) + 1
        if self.counts[condition] > 1:
            return False
        if predicate is not None:
            self.predicates[condition] = predicate
            self._add_widest(condition, predicate)
        return True

    def remove(self, condition: PredicateText) -> bool:
        """False if another subscription still has this predicate."""
        self.counts[condition] -= 1
        if self.counts[condition]:
            return False
        del self.counts[condition]
        if self.predicates.pop(condition, None) is not None and condition in self.widest:
            del self.widest[condition]
            for each, predicate in self.predicates.items():
                if each not in self.widest:
                    self._add_widest(each, predicate)
        return True

    def _add_widest(self, condition: PredicateText, predicate: Predicate) -> None:
        if len(self.widest) <= MANY:  # beyond that, the filter alone is announced
            for other in self.widest:
                if covers(self.predicates[other], predicate):
                    return
            for other in list(self.widest):
                if covers(predicate, self.predicates[other]):
                    del self.widest[other]
        self.widest[condition] = True


class InterestTable:
    """Local interests and their announcements, at most `budget` bytes of them.

    `changes` returns the keys to announce, or to withdraw (None).
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.announced: dict[
            str, dict[Interest, str]
        ] = {}  # by filter; the value is the record key
        self.size = 0  # bytes of all announcements
        self._budget = budget
        self._by_filter: dict[str, _FilterInterest] = {}
        self._wide: ChannelMap[str] = ChannelMap()  # wildcard filters announced without predicate
        self._withdraw_us: dict[
            str, int
        ] = {}  # of those: when the filters they cover are withdrawn
        self._covering: dict[str, dict[str, None]] = {}  # wide filter: unannounced filters below it
        self._covered: dict[str, str] = {}  # the inverse: by which wide filter
        self._aggregates: dict[str, None] = {}  # aggregates: no client subscribed to them
        self._dirty: dict[str, None] = {}
        self._may_narrow = False  # interests were removed since the last attempt to narrow
        self._narrow_us = 0  # earliest time of the next attempt
        self._last_key = 0

    def add(self, pattern: str, condition: PredicateText, predicate: Predicate | None) -> None:
        if not pattern.startswith("$"):  # these channels are local to a node
            self._add(*_bounded(pattern, condition, predicate))

    def remove(self, pattern: str, condition: PredicateText) -> None:
        if not pattern.startswith("$"):
            self._may_narrow = True
            bounded, condition, _ = _bounded(pattern, condition, None)
            self._remove(bounded, condition)

    @property
    def is_aggregated(self) -> bool:
        return bool(self._aggregates)

    def count_aggregated(self) -> int:
        """How many filters are announced only as part of an aggregate."""
        found = 0
        for pattern in self._aggregates:
            wide = self._covered.get(pattern)
            if wide is None or wide in self._aggregates:
                found += len(self._covering.get(pattern, ())) - (wide is not None)
                found += len(self._by_filter[pattern].counts) > 1
        return found

    def has_changed(self) -> bool:
        """Whether there are changes to announce."""
        return bool(self._dirty)

    def next_due_us(self) -> int | None:
        """When to call `changes` next if no subscription changes before."""
        due_us = min(self._withdraw_us.values()) if self._withdraw_us else None
        if self._aggregates and self._may_narrow:
            return self._narrow_us if due_us is None else min(due_us, self._narrow_us)
        return due_us

    def changes(self, now_us: int) -> list[tuple[str, Interest | None]]:
        """Changes since the last call: announcements before withdrawals."""
        if not (self._dirty or self._withdraw_us or self._aggregates or self.size > self._budget):
            return []
        for wide, due_us in list(self._withdraw_us.items()):
            if due_us == _UNSCHEDULED:
                self._withdraw_us[wide] = now_us + SETTLE_US
            elif due_us <= now_us:
                self._withdraw_covered(wide)
        new: dict[str, Interest] = {}
        gone: list[str] = []
        self._announce(new, gone)
        if self._aggregates and self._may_narrow and now_us >= self._narrow_us:
            self._narrow_us = now_us + NARROW_US
            self._may_narrow = False
            self._narrow()
            self._announce(new, gone)
        if self.size > self._budget:
            for wide in list(self._withdraw_us):
                self._withdraw_covered(wide)
            self._announce(new, gone)
        if self.size > self._budget:
            self._aggregate(self._announcements(self.announced), self.size - _part(self._budget, 7))
            self._announce(new, gone)
            self._narrow_us = now_us + NARROW_US
        return [*new.items(), *((key, None) for key in gone)]

    def check_invariants(self) -> None:
        """Every interest is covered by an announcement, and announcements fit the budget."""
        assert self._covered == {
            each: wide for wide, covered in self._covering.items() for each in covered
        }
        if self._dirty:
            return
        sizes = (size_of(need) for needs in self.announced.values() for need in needs)
        assert self.size == sum(sizes) <= self._budget
        for pattern, interest in self._by_filter.items():
            for condition in interest.counts:
                assert any(
                    self._covers(need, pattern, condition)
                    for needs in self.announced.values()
                    for need in needs
                )

    def _covers(self, need: Interest, pattern: str, condition: PredicateText) -> bool:
        """Whether the announced `need` covers the filter with that predicate."""
        key = (need.where, need.xpath)
        if not filter_covers(need.filter, pattern):
            return False
        if key in (_NONE, condition):
            return True
        predicates = self._by_filter[pattern].predicates
        return condition in predicates and bool(
            covers(self._by_filter[need.filter].predicates[key], predicates[condition])
        )

    # ---------------------------------------------------------------------------------- interests

    def _add(self, pattern: str, condition: PredicateText, predicate: Predicate | None) -> None:
        interest = self._by_filter.setdefault(pattern, _FilterInterest())
        was_plain = interest.is_plain()
        if interest.add(condition, predicate):
            self._on_change(pattern, interest, was_plain=was_plain)

    def _remove(self, pattern: str, condition: PredicateText) -> None:
        interest = self._by_filter[pattern]
        was_plain = interest.is_plain()
        if interest.remove(condition):
            if not interest.counts:
                del self._by_filter[pattern]
            self._on_change(pattern, interest, was_plain=was_plain)

    def _on_change(self, pattern: str, interest: _FilterInterest, *, was_plain: bool) -> None:
        self._dirty[pattern] = None
        is_plain = bool(interest.counts) and interest.is_plain()
        if is_plain == was_plain or not ("+" in pattern or "#" in pattern):
            return
        if is_plain:
            self._wide.set(pattern, pattern)
            # Covered filters are withdrawn only after a while, so that a short-lived subscription
            # does not cause two rounds of announcements.
            self._withdraw_us[pattern] = _UNSCHEDULED
        else:
            self._wide.remove(pattern)
            self._withdraw_us.pop(pattern, None)
            for each in self._covering.pop(pattern, ()):
                del self._covered[each]
                self._dirty[each] = None

    # ---------------------------------------------------------------------------------- announcing

    def _announce(self, new: dict[str, Interest], gone: list[str]) -> None:
        for pattern in self._dirty:
            before, wanted = self.announced.pop(pattern, {}), self._interests_for(pattern)
            now: dict[Interest, str] = {}
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

    def _interests_for(self, pattern: str) -> list[Interest]:
        """Interests to announce for one filter; none if another filter covers it."""
        wide = self._covered.pop(pattern, None)
        if wide is not None:
            del self._covering[wide][pattern]
        interest = self._by_filter.get(pattern)
        if interest is None:
            return []
        wide = self._cover_of(pattern)
        if wide is not None:
            self._covered[pattern] = wide
            self._covering.setdefault(wide, {})[pattern] = None
            return []
        return interest.interests(pattern)

    def _cover_of(self, pattern: str, excluding: str = "") -> str | None:
        # The map treats wildcards in `pattern` as names, so it may find too many.
        for wide in self._wide.select(pattern):
            if wide not in (pattern, excluding) and filter_covers(wide, pattern):
                return wide
        return None

    def _withdraw_covered(self, wide: str) -> None:
        """Schedule the withdrawal of the filters that `wide` covers."""
        self._withdraw_us.pop(wide, None)
        for pattern in self.announced:
            if pattern != wide and filter_covers(wide, pattern):
                self._dirty[pattern] = None

    # -------------------------------------------------------------------------------- aggregation

    def _announcements(self, filters: Iterable[str]) -> list[AnnouncedFilter]:
        """The announcements of these filters if nothing covered them."""
        return [
            AnnouncedFilter(
                each,
                sum(size_of(need) for need in self._by_filter[each].interests(each)),
                size_of(Interest(each)),
            )
            for each in filters
            if each in self._by_filter
        ]

    def _aggregate(self, announced: list[AnnouncedFilter], excess: int) -> None:
        for pattern in aggregate(announced, excess, _BASE_BYTES):
            self._add_aggregate(pattern)

    def _add_aggregate(self, pattern: str) -> None:
        assert pattern not in self._aggregates
        self._aggregates[pattern] = None
        self._add(pattern, _NONE, None)
        if pattern in self._withdraw_us:
            self._withdraw_covered(pattern)

    def _narrow(self) -> None:
        """Undo aggregation as far as there is room."""
        size, looked = self.size, 0
        for pattern in list(self._aggregates):
            if pattern in self._covered:  # not announced itself
                own = self._by_filter[pattern].interests(pattern, excluding_one=True)
                if not own and not self._covering.get(pattern):
                    self._remove_aggregate(pattern)
                continue
            looked += len(self._covering.get(pattern, ()))
            if looked > _MAX_NARROW_SCAN:
                self._may_narrow = True
                return
            del self._aggregates[pattern]
            self._aggregates[pattern] = None  # moved to the end: others come first next time
            size = self._narrow_one(pattern, size)

    def _narrow_one(self, pattern: str, size: int) -> int:
        """Replace one aggregate by narrower ones if they fit; returns the resulting total size."""
        hidden = self._covering.get(pattern, ())
        announced = self._announcements(
            each for each in hidden if self._cover_of(each, excluding=pattern) is None
        )
        own = self._by_filter[pattern].interests(pattern, excluding_one=True)
        plain_size = size_of(Interest(pattern))
        if own:
            announced.append(AnnouncedFilter(pattern, sum(map(size_of, own)), plain_size))
        after = size - plain_size + sum(each.size for each in announced)
        most = max(size, _part(self._budget, 6))
        within = aggregate(announced, after - most, _BASE_BYTES) if after > most else []
        if any(each == pattern or not filter_covers(pattern, each) for each in within):
            return size
        for each in within:
            self._add_aggregate(each)
        self._remove_aggregate(pattern)
        return min(after, most)

    def _remove_aggregate(self, pattern: str) -> None:
        del self._aggregates[pattern]
        self._remove(pattern, _NONE)
        self._may_narrow = True  # there may be room to narrow others too


def _bounded(
    pattern: str, condition: PredicateText, predicate: Predicate | None
) -> tuple[str, PredicateText, Predicate | None]:
    """The same interest, or a wider one if it exceeds the limits on levels and bytes."""
    names = pattern.split("/", MAX_LEVELS)
    if len(names) > MAX_LEVELS or len(pattern.encode()) > MAX_FILTER_BYTES:
        del names[MAX_LEVELS:]
        while names and len("/".join(names).encode()) > MAX_FILTER_BYTES:
            names.pop()
        return "/".join([*names, "#"]), _NONE, None
    if sum(len(text.encode()) for text in condition) > MAX_CONDITION_BYTES:
        return pattern, _NONE, None
    return pattern, condition, predicate


def size_of(need: Interest) -> int:
    """Upper bound of the bytes that its state record takes."""
    return _BASE_BYTES + sum(len(text.encode()) for text in (need.filter, need.where, need.xpath))


def _part(budget: int, eighths: int) -> int:
    return budget * eighths // 8
