"""Which needs are told wider than they are, where there is not enough room to tell each of them.

A wider need is always right: too much comes, and the router of the node that needs it chooses. So
predicates are left out, or all needs below a common prefix become one, `a/b/#`. Filters are seen as
a tree of their levels. Only where it forks for the last time needs are put together, so that no
more is widened than what is next to each other; then perhaps where it forks above that. Of all
such places the one that saves most comes first: it is the crowd that gives way, and those who need
little keep what they said.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import msgspec


class AnnouncedFilter(msgspec.Struct, frozen=True):
    """All that is told of one filter, what it takes, and what the filter alone would take."""

    filter: str
    size: int
    plain_size: int


class _Fork:
    """A place in the tree: what is told there and below."""

    __slots__ = ("above", "below", "count", "forks", "is_one", "name", "size", "told")

    def __init__(self, name: str, above: _Fork | None) -> None:
        self.name = name
        self.above = above
        self.below: dict[str, _Fork] = {}
        self.told: AnnouncedFilter | None = None
        self.is_one = False  # all that is there and below has been put together
        self.size = 0
        self.count = 0  # of filters
        self.forks = 0  # how many places right below have more than one filter

    def filter(self) -> str:
        """The one that selects everything below."""
        names = ["#"]
        place = self
        while place.above is not None:
            names.append(place.name)
            place = place.above
        return "/".join(reversed(names))


# What it saves (below 0), as which filter, whether by putting together, and where.
_Candidate = tuple[int, str, bool, _Fork]


def aggregate(told: Iterable[AnnouncedFilter], excess: int, base_size: int) -> list[str]:
    """The filters to tell instead, without predicates, so that it takes `excess` less.

    A filter takes `base_size` beside its text. If that can't be, as much less as can.
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
        # Where predicates below were left out since, a fork saves less than it would have.
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
        return 0, name, True, fork  # everything: when nothing else is left
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
    """Make it one need; gives the fork above if that has become a last one."""
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
