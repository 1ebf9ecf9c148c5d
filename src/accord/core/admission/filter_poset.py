"""Poset of advertised filters, ordered by covering, with sums over what each filter covers.

Each advertised filter has a `rate`, the sum of the maximum rates of all advertisements that it
covers, and a `count` of them; its own are included. Both are sums over distinct advertisements: one
that is covered along several paths counts once. A new advertisement is added to the sums of all
filters that cover it, and a new filter starts with the sum over what it covers; removing an
advertisement is the inverse.

The poset's edges are not stored: an index finds the filters that cover, or are covered by, a given
one, and from these its direct predecessors and successors.

Rates are integers in thousandths of a hertz, so sums stay exact under any sequence of changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from accord.core.admission.filter_index.filter_relations import (
    FilterRelations,
    Nodes,
    RelatedFilters,
)
from accord.core.admission.filter_index.filters import Filter, covers
from accord.core.admission.filter_index.tables import NOTHING, Sums
from accord.core.model.errors import AdmissionError
from accord.core.predicates.predicate import parse

PER_HZ: Final = 1_000
MAX_HZ: Final = 1e9
MAX_ADVERTISEMENTS: Final = 4_000_000  # so that no sum overflows
MAX_GENERAL: Final = 64
MAX_TERMS: Final = 4


class _Entry:
    """An advertised filter; `shares` are its own sums by node, if there are several nodes."""

    __slots__ = ("channel", "identity", "node", "shares", "text")

    def __init__(self, filter_: Filter, node: str) -> None:
        self.channel = filter_.channel
        self.text = str(filter_.predicate)
        self.identity = filter_.identity
        self.node = node
        self.shares: dict[str, Sums] | None = None


@dataclass(frozen=True, slots=True)
class AdvertisedFilter:
    """An advertised filter with its own sums and the sums over what it covers."""

    filter: Filter
    own: Sums
    total: Sums

    @property
    def rate_hz(self) -> float:
        return to_hz(self.total.rate)

    @property
    def count(self) -> int:
        return self.total.count


@dataclass(frozen=True, slots=True)
class PosetLookup:
    """What the advertisements imply for a filter.

    `exact` is the total of the filter itself, if it is advertised. `most_covered` has the greatest
    rate and count of any filter that it covers, `least_covering` the smallest of any that covers
    it. With `is_approximate` there were too many filters to compare, and `covered` may be too
    small.
    """

    exact: Sums | None = None
    covered: Sums = NOTHING
    intersecting: Sums = NOTHING
    most_covered: Sums = NOTHING
    least_covering: Sums | None = None
    is_approximate: bool = False


class FilterPoset:
    """All advertisements known to a node, with bounds on their number and on general filters."""

    def __init__(
        self, *, advertisements_limit: int = MAX_ADVERTISEMENTS, general_limit: int = MAX_GENERAL
    ) -> None:
        self._advertisements_limit = min(advertisements_limit, MAX_ADVERTISEMENTS)
        self._general_limit = general_limit
        self._relations = FilterRelations()
        self._entries: list[_Entry | None] = []
        self._free: list[int] = []
        self._numbers: dict[bytes, int] = {}
        self._advertised: dict[Hashable, tuple[int, int, str]] = {}
        self.version = 0  # increases with each change

    def __len__(self) -> int:
        """Number of advertised filters."""
        return len(self._numbers)

    @property
    def advertisements(self) -> int:
        return len(self._advertised)

    @property
    def general_filters(self) -> int:
        """Number of general filters."""
        return len(self._relations.odd)

    @property
    def sparse_rows(self) -> int:
        """Number of filters held as sparse rows: their attributes are rarely constrained."""
        return self._relations.index.strays

    @property
    def compared(self) -> int:
        """Number of filters compared one by one so far."""
        return self._relations.compared

    # ------------------------------------------------------------------------------------ changes

    def advertise(self, key: Hashable, filter_: Filter, rate_hz: float, node: str = "") -> None:
        """Add an advertisement; one with the same `key` is replaced."""
        own = Sums(to_units(rate_hz), 1)
        self._check(key, filter_)
        self.unadvertise(key)
        self.version += 1
        number = self._find(filter_)
        if number is None:
            number = self._free.pop() if self._free else len(self._entries)
            if number == len(self._entries):
                self._entries.append(None)
            self._relations.add(number, filter_, node, own)
            entry = self._entries[number] = _Entry(filter_, node)
            self._numbers[entry.identity] = number
        else:
            self._change(number, filter_, own, node)
        self._advertised[key] = number, own.rate, node

    def unadvertise(self, key: Hashable) -> bool:
        """Remove an advertisement; returns whether it existed."""
        known = self._advertised.pop(key, None)
        if known is None:
            return False
        self.version += 1
        number, rate, node = known
        filter_ = self._filter(number)
        if self._relations.own(number).count > 1:
            self._change(number, filter_, Sums(-rate, -1), node)
            return True
        self._relations.remove(number, filter_, Sums(rate, 1))
        del self._numbers[self._entry(number).identity]
        self._entries[number] = None
        self._free.append(number)
        return True

    # -------------------------------------------------------------------------------------- queries

    def __contains__(self, key: Hashable) -> bool:
        return key in self._advertised

    def __iter__(self) -> Iterator[AdvertisedFilter]:
        for number, entry in enumerate(self._entries):
            if entry is not None:
                yield self._advertised_filter(number)

    def get(self, filter_: Filter) -> AdvertisedFilter | None:
        number = self._find(filter_)
        return None if number is None else self._advertised_filter(number)

    def look_up(self, filter_: Filter, nodes: Nodes = None) -> PosetLookup:
        """Look a filter up; `covered` and `intersecting` only count `nodes`, if given."""
        if not filter_.terms:
            return PosetLookup()
        relating = self._relations
        covered, covering = relating.covered(filter_), relating.covering(filter_)
        number = self._find(filter_)
        return PosetLookup(
            exact=None if number is None else relating.total(number),
            covered=(
                self._sum(covered, covered.odd, nodes)
                if nodes is None
                else self.sum_covered(filter_, nodes)
            ),
            intersecting=self.sum_intersecting(filter_, nodes),
            most_covered=relating.most(covered),
            least_covering=relating.least(covering),
            is_approximate=covered.is_loose,
        )

    def sum_covered(self, filter_: Filter, nodes: Nodes = None) -> Sums:
        """Sum over the advertisements that the filter covers."""
        covered = self._relations.covered(filter_, nodes)
        return self._sum(covered, covered.odd, nodes)

    def sum_intersecting(self, filter_: Filter, nodes: Nodes = None) -> Sums:
        """Sum over the advertisements that intersect the filter or cannot be proved not to."""
        intersecting = self._relations.intersecting(filter_, nodes)
        return self._sum(intersecting, intersecting.odd + intersecting.unknown, nodes)

    def intersecting_by_node(self, filter_: Filter) -> dict[str, Sums]:
        """Return `sum_intersecting` by node, for each node that has such advertisements."""
        group = self._relations.intersecting(filter_)
        sums = self._relations.sum_by_node(group)
        for number in (*self._relations.several(group), *group.odd, *group.unknown):
            entry = self._entry(number)
            shares = entry.shares or {entry.node: self._relations.own(number)}
            for node, share in shares.items():
                sums[node] = sums.get(node, NOTHING).plus(share)
        return sums

    def successors(self, filter_: Filter) -> list[AdvertisedFilter]:
        """Return the filters directly covered by this one."""
        covered = self._others(self._relations.covered(filter_), filter_)
        # Larger counts first: an intermediate filter precedes the filters below it.
        covered.sort(key=lambda each: -each.count)
        return _outermost(covered, covers)

    def predecessors(self, filter_: Filter) -> list[AdvertisedFilter]:
        """Return the filters that directly cover this one."""
        covering = self._others(self._relations.covering(filter_), filter_)
        covering.sort(key=lambda each: each.count)
        return _outermost(covering, lambda one, other: covers(other, one))

    def check_invariants(self) -> None:
        self._relations.check_invariants()
        present = [number for number, entry in enumerate(self._entries) if entry is not None]
        assert sorted(self._numbers.values()) == present
        assert len(self._relations) == len(present) == len(self._entries) - len(self._free)
        assert self.general_filters <= self._general_limit
        assert self.advertisements <= self._advertisements_limit
        own: dict[int, Sums] = dict.fromkeys(present, NOTHING)
        for number, rate, _ in self._advertised.values():
            own[number] = own[number].plus(Sums(rate, 1))
        for number, sums in own.items():
            assert sums == self._relations.own(number)
            shares = self._entry(number).shares
            if shares is not None:
                assert len(shares) > 1
                assert sum(share.count for share in shares.values()) == sums.count
                assert sum(share.rate for share in shares.values()) == sums.rate

    # ------------------------------------------------------------------------------------- inside

    def _check(self, key: Hashable, filter_: Filter) -> None:
        if not filter_.terms:
            raise AdmissionError("predicate", "expected one that some event can match")
        if key not in self._advertised and self.advertisements >= self._advertisements_limit:
            limit = f"{self._advertisements_limit:,}"
            raise AdmissionError("advertisement", f"expected at most {limit} at a time")
        if len(filter_.terms) > MAX_TERMS:
            raise AdmissionError(
                "predicate",
                f"expected at most {MAX_TERMS} alternatives, got {len(filter_.terms)} when "
                "multiplied out",
            )
        is_full = self.general_filters >= self._general_limit and self._relations.is_odd(filter_)
        if is_full and self._find(filter_) is None:
            raise AdmissionError(
                "predicate",
                "expected a conjunction of conditions on single attributes: "
                f"{self._general_limit:,} others are advertised already",
            )

    def _find(self, filter_: Filter) -> int | None:
        number = self._numbers.get(filter_.identity)
        return self._relations.same(filter_) if number is None else number

    def _entry(self, number: int) -> _Entry:
        entry = self._entries[number]
        assert entry is not None
        return entry

    def _filter(self, number: int) -> Filter:
        if number in self._relations.odd:
            return self._relations.odd[number].filter
        entry = self._entry(number)
        return Filter(entry.channel, parse(entry.text))

    def _advertised_filter(self, number: int) -> AdvertisedFilter:
        return AdvertisedFilter(
            self._filter(number), self._relations.own(number), self._relations.total(number)
        )

    def _others(self, group: RelatedFilters, filter_: Filter) -> list[AdvertisedFilter]:
        same = self._find(filter_)
        numbers = self._relations.numbers(group)
        return [self._advertised_filter(number) for number in numbers if number != same]

    def _change(self, number: int, filter_: Filter, change: Sums, node: str) -> None:
        """Add or remove one advertisement of a known filter."""
        entry = self._entry(number)
        if filter_.identity != entry.identity:
            filter_ = self._filter(number)  # equivalent, but less may be provable of it
        before = self._relations.own(number)
        self._relations.change(number, filter_, change)
        if entry.shares is None:
            if node == entry.node:
                return
            entry.shares = {entry.node: before}
        was_several = len(entry.shares) > 1
        share = entry.shares.pop(node, NOTHING).plus(change)
        if share.count:
            entry.shares[node] = share
        is_several = len(entry.shares) > 1
        if not is_several:
            (entry.node,) = entry.shares
            entry.shares = None
        if was_several != is_several:
            self._relations.move(number, entry.channel, None if is_several else entry.node)

    def _sum(self, group: RelatedFilters, odd: list[int], nodes: Nodes) -> Sums:
        """Sum over what is advertised at `nodes`; single-node boxes of the group are all there."""
        sums = self._relations.sum_boxes(group)
        for number in odd:
            sums = sums.plus(self._relations.own(number))
        if nodes is None:
            return sums
        for number in (*self._relations.several(group), *odd):
            entry = self._entry(number)
            shares = entry.shares or {entry.node: self._relations.own(number)}
            for node, share in shares.items():
                if node not in nodes:
                    sums = sums.plus(Sums(-share.rate, -share.count))
        return sums


def _outermost(
    sorted_: list[AdvertisedFilter], is_beyond: Callable[[Filter, Filter], bool | None]
) -> list[AdvertisedFilter]:
    """Return the filters that no other one is beyond."""
    kept: list[AdvertisedFilter] = []
    for other in sorted_:
        if not any(is_beyond(each.filter, other.filter) for each in kept):
            kept.append(other)
    return [
        one
        for one in kept
        if not any(is_beyond(each.filter, one.filter) for each in kept if each is not one)
    ]


def to_units(rate_hz: float) -> int:
    """Convert to thousandths of a hertz, rounded up: never less than was advertised."""
    if not 0 <= rate_hz <= MAX_HZ:
        raise AdmissionError("rate_hz", f"expected 0 to {MAX_HZ:,.0f} events/s, got {rate_hz}")
    return math.ceil(rate_hz * PER_HZ - 1e-6)


def to_hz(units: int) -> float:
    return units / PER_HZ
