"""Aggregation of interests that exceed the announcement budget, as IP prefixes are aggregated.

A wider interest is always correct: more events arrive, and the receiving node's router selects. So
predicates are omitted, or all interests below a common prefix are replaced by one, `a/b/#`. Filters
form a tree of their levels. Interests are merged only at the lowest forks, so that only adjacent
ones are widened; a fork above becomes a candidate once it is the lowest. The candidate that saves
most goes first: crowded prefixes are aggregated, sparse ones keep their exact interests.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import msgspec


class AnnouncedFilter(msgspec.Struct, frozen=True):
    """A filter with the size of its announcements, and the size without predicates."""

    filter: str
    size: int
    plain_size: int


class _Fork:
    """A node of the tree, with totals of the filters at and below it."""

    __slots__ = ("above", "below", "count", "forks", "is_one", "name", "size", "told")

    def __init__(self, name: str, above: _Fork | None) -> None:
        self.name = name
        self.above = above
        self.below: dict[str, _Fork] = {}
        self.told: AnnouncedFilter | None = None
        self.is_one = False  # all filters at and below it were merged
        self.size = 0
        self.count = 0  # of filters
        self.forks = 0  # direct children with more than one filter

    def filter(self) -> str:
        """The filter that selects everything below."""
        names = ["#"]
        place = self
        while place.above is not None:
            names.append(place.name)
            place = place.above
        return "/".join(reversed(names))


# Bytes saved (negative), resulting filter, whether it merges a fork, and the tree node.
_Candidate = tuple[int, str, bool, _Fork]


def aggregate(told: Iterable[AnnouncedFilter], excess: int, base_size: int) -> list[str]:
    """Filters to announce instead, without predicates, that save `excess` bytes.

    A filter takes `base_size` bytes besides its text. Saves as much as possible if not enough.
    """
    root = _Fork("", None)
    heap: list[_Candidate] = []
    for each in told:
        place = _put(root, each)
        if each.size > each.plain_size:
            heap.append((each.plain_size - each.size, each.filter, False, place))
    heap += _last_forks(root, base_size)
    heapify(heap)
    found: dict[str, _Fork] = {}
    while excess > 0 and heap:
        _, name, is_fork, place = heappop(heap)
        if _is_within_one(place):
            continue
        # A fork saves less than computed if predicates below it were omitted since.
        saved = place.size - base_size - len(name.encode())
        if not is_fork:
            assert place.told is not None
            saved = place.told.size - place.told.plain_size
        _save(place, saved)
        above = _put_together(place) if is_fork else None
        if above is not None:
            heappush(heap, _candidate(above, base_size))
        excess -= saved
        found[name] = place
    return [name for name, place in found.items() if not _is_within_one(place)]


def _put(root: _Fork, told: AnnouncedFilter) -> _Fork:
    place = root
    path = [root]
    for name in told.filter.split("/"):
        below = place.below.get(name)
        if below is None:
            below = place.below[name] = _Fork(name, place)
        place = below
        path.append(place)
    place.told = told
    for each in path:
        each.size += told.size
        each.count += 1
        if each.count == 2 and each.above is not None:
            each.above.forks += 1
    return place


def _last_forks(root: _Fork, base_size: int) -> list[_Candidate]:
    found = []
    places = [root]
    while places:
        place = places.pop()
        if place.count > 1 and not place.forks:
            found.append(_candidate(place, base_size))
        else:
            places += [each for each in place.below.values() if each.count > 1]
    return found


def _candidate(fork: _Fork, base_size: int) -> _Candidate:
    name = fork.filter()
    if fork.above is None:
        return 0, name, True, fork  # `#` itself is the last resort
    return base_size + len(name.encode()) - fork.size, name, True, fork


def _is_within_one(place: _Fork) -> bool:
    above = place.above
    while above is not None:
        if above.is_one:
            return True
        above = above.above
    return False


def _save(place: _Fork, saved: int) -> None:
    up: _Fork | None = place
    while up is not None:
        up.size -= saved
        up = up.above


def _put_together(fork: _Fork) -> _Fork | None:
    """Merge the fork into one interest; returns an upper fork that is now a lowest one."""
    fork.is_one = True
    gone, fork.count, fork.forks = fork.count - 1, 1, 0
    last: _Fork | None = None
    below, place = fork, fork.above
    while place is not None:
        place.count -= gone
        if below.count == 1:
            place.forks -= 1
            if place.count > 1 and not place.forks:
                last = place
        below, place = place, place.above
    return last
