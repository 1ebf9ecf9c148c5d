"""Records which demand depends on which profile copy, and the score it requires per property.

The required scores of each property of a copy are kept sorted: the overall requirement is the last
of them, and the demands that a worse value would break are those above that value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping

from accord.core.quality.match_groups import ProfileCopy

RequiredScores = Mapping[str, float]  # least score by property


class _Relied:
    __slots__ = ("levels", "utilities")

    def __init__(self) -> None:
        self.utilities: dict[str, float] = {}  # utility by demand
        self.levels: dict[str, list[tuple[float, str]]] = {}


class ProfileDependencies:
    def __init__(self) -> None:
        self._copies: dict[ProfileCopy, _Relied] = {}
        self._by_demand: dict[str, tuple[tuple[ProfileCopy, ...], RequiredScores]] = {}
        self._changed: dict[ProfileCopy, bool] = {}

    def replace(
        self, who: str, copies: tuple[ProfileCopy, ...], required: RequiredScores, utility: float
    ) -> None:
        """Replaces the dependencies of a demand with these copies."""
        if (copies, required) == self._by_demand.get(who) and all(
            self._copies[copy].utilities[who] == utility for copy in copies
        ):
            return
        self.release(who)
        if not copies:
            return
        self._by_demand[who] = copies, required
        for copy in copies:
            relied = self._copies.setdefault(copy, _Relied())
            relied.utilities[who] = utility
            for name, least in required.items():
                insort(relied.levels.setdefault(name, []), (least, who))
            self._changed[copy] = True

    def release(self, who: str) -> None:
        copies, needs = self._by_demand.pop(who, ((), {}))
        for copy in copies:
            relied = self._copies[copy]
            del relied.utilities[who]
            for name, least in needs.items():
                levels = relied.levels[name]
                del levels[bisect_left(levels, (least, who))]
                if not levels:
                    del relied.levels[name]
            if not relied.utilities:
                del self._copies[copy]
            self._changed[copy] = True

    def copies(self, who: str) -> tuple[ProfileCopy, ...]:
        found = self._by_demand.get(who)
        return found[0] if found else ()

    def required(self, copy: ProfileCopy) -> dict[str, float]:
        """The highest required score of each property."""
        relied = self._copies.get(copy)
        return {} if relied is None else {name: at[-1][0] for name, at in relied.levels.items()}

    def level(self, copy: ProfileCopy, name: str) -> float | None:
        relied = self._copies.get(copy)
        levels = None if relied is None else relied.levels.get(name)
        return levels[-1][0] if levels else None

    def between(self, copy: ProfileCopy, name: str, below: float, up_to: float) -> list[str]:
        """Demands that require more than `below` and at most `up_to`."""
        relied = self._copies.get(copy)
        levels = [] if relied is None else relied.levels.get(name, [])
        # No ID sorts after this character.
        first, end = (bisect_right(levels, (score, "\U0010ffff")) for score in (below, up_to))
        return [who for _, who in levels[first:end]]

    def all(self) -> list[ProfileCopy]:
        """Copies with at least one dependent demand."""
        return list(self._copies)

    def dependents(self, copy: ProfileCopy) -> list[str]:
        relied = self._copies.get(copy)
        return [] if relied is None else list(relied.utilities)

    def usage(self, copy: ProfileCopy) -> tuple[int, float]:
        """Number of dependent demands, and the sum of their utilities."""
        relied = self._copies.get(copy)
        return (
            (0, 0.0) if relied is None else (len(relied.utilities), sum(relied.utilities.values()))
        )

    def take_changed(self) -> list[ProfileCopy]:
        """Copies whose dependent demands or required scores changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def check_invariants(self) -> None:
        for who, (copies, needs) in self._by_demand.items():
            assert copies
            for copy in copies:
                relied = self._copies[copy]
                assert who in relied.utilities
                assert all((least, who) in relied.levels[n] for n, least in needs.items())
        for copy, relied in self._copies.items():
            assert relied.utilities
            assert all(copy in self._by_demand[who][0] for who in relied.utilities)
            for levels in relied.levels.values():
                assert levels
                assert levels == sorted(levels)
                assert all(who in relied.utilities for _, who in levels)
