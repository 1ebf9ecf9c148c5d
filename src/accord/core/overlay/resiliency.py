"""Resiliency of a set of paths, and selection of the most resilient combination.

A path is up when all its links and intermediate nodes are; its two ends are assumed up. Links fail
in both directions together, and a part shared by several paths fails for all of them. The
resiliency of a set of paths is the probability that at least one is up, by inclusion and exclusion
over the paths: `Pr(Q) = Σ_j (−1)^(j+1) Σ_{|I|=j} Pr(E_I)`, where `E_I` is the event that all parts
of all paths in `I` are up. Parts that belong to exactly the same paths are combined, and those
common to all paths are factored out.

The best combination is found by branch and bound. Resiliency is monotone and submodular: adding a
path never lowers it, and its gain shrinks as the set grows. So the remaining paths cannot reach
more than either of

- the current value plus the sum of the best individual gains;
- the value if these paths shared nothing with each other or with those chosen (common parts make
  it more likely that all fail together than if they failed independently).

Candidates are tried in order of decreasing gain, so the first combination is the greedy one, which
is good. Of equally resilient combinations the one with the lowest total delay wins.

For up to five paths of sixteen the result is always optimal. Effort is limited, because the number
of combinations is not: beyond the limit, the best combination so far is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from accord.core.overlay.k_shortest_paths import OverlayPath

MAX_PATHS: Final = 8
_MAX_TERMS: Final = 100_000
# Smaller differences are rounding errors.
_SAME: Final = 1e-12


class FailureProbabilities(Protocol):
    """Source of failure probabilities, such as a `LinkStateMap`."""

    def node_failure(self, name: str) -> float: ...

    def link_failure(self, source: str, target: str) -> float: ...


def resiliency(paths: Sequence[OverlayPath], failures: FailureProbabilities) -> float:
    """Probability that at least one of up to `MAX_PATHS` paths is up."""
    _check_count(len(paths))
    parts = _Parts(paths, failures)
    union = _Union()
    for mask in parts.masks:
        union = union.with_path(mask, union.gain(mask, parts), parts)
    return _share(union.value * parts.common)


def choose(
    paths: Sequence[OverlayPath], n: int, failures: FailureProbabilities
) -> tuple[list[OverlayPath], float]:
    """The most resilient combination of `n` paths (all if there are fewer), and its resiliency."""
    n = min(n, len(paths))
    if n <= 0:
        return [], 0.0
    _check_count(n)
    if n == len(paths):
        return list(paths), resiliency(paths, failures)
    parts = _Parts(paths, failures)
    search = _Search(parts, [path.delay_us for path in paths], n)
    search.visit((), _Union(), list(range(len(paths))))
    return [paths[each] for each in sorted(search.best)], _share(search.value * parts.common)


def _check_count(count: int) -> None:
    if count > MAX_PATHS:
        raise ValueError(f"paths: expected at most {MAX_PATHS} at a time, got {count}")


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


class _Parts:
    """Links and nodes of the paths as bit masks; parts that never fail are omitted."""

    def __init__(self, paths: Sequence[OverlayPath], failures: FailureProbabilities) -> None:
        users: dict[tuple[str, str], int] = {}  # by link, or (node, ""): bit mask of paths
        for number, path in enumerate(paths):
            for part in _parts_of(path):
                users[part] = users.get(part, 0) | 1 << number
        together: dict[int, float] = {}
        for (one, other), members in users.items():
            down = failures.link_failure(one, other) if other else failures.node_failure(one)
            if down > 0:
                together[members] = together.get(members, 1.0) * (1 - down)
        self.common = together.pop((1 << len(paths)) - 1, 1.0)
        self.masks = [0] * len(paths)
        self._up = list(together.values())
        for bit, members in enumerate(together):
            for number in range(len(paths)):
                if members >> number & 1:
                    self.masks[number] |= 1 << bit
        self._known: dict[int, float] = {}

    def up(self, mask: int) -> float:
        """Probability that all parts of `mask` are up."""
        known = self._known.get(mask, -1.0)
        if known < 0:
            known = 1.0
            rest = mask
            while rest:
                lowest = rest & -rest
                known *= self._up[lowest.bit_length() - 1]
                rest ^= lowest
            self._known[mask] = known
        return known


def _parts_of(path: OverlayPath) -> list[tuple[str, str]]:
    nodes = path.nodes
    parts = [(node, "") for node in nodes[1:-1]]
    for place in range(1, len(nodes)):
        one, other = nodes[place - 1], nodes[place]
        parts.append((one, other) if one < other else (other, one))
    return parts


class _Union:
    """A set of paths: probability that one is up, and its inclusion-exclusion terms."""

    __slots__ = ("_masks", "_terms", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._masks: list[int] = []
        self._terms: list[float] = []

    def gain(self, mask: int, parts: _Parts) -> float:
        """Gain of one more path: probability that it is up and none of the others is."""
        left = parts.up(mask)
        for place, known in enumerate(self._masks):
            left -= self._terms[place] * parts.up(mask & ~known)
        return max(left, 0.0)

    def with_path(self, mask: int, gain: float, parts: _Parts) -> _Union:
        union = _Union()
        union.value = self.value + gain
        union._masks = [*self._masks, mask]
        union._terms = [*self._terms, parts.up(mask)]
        for place, known in enumerate(self._masks):
            union._masks.append(known | mask)
            union._terms.append(-self._terms[place] * parts.up(mask & ~known))
        return union

    def size(self) -> int:
        return len(self._masks)


class _Search:
    """Branch-and-bound search for the best `n` paths; `best` are their numbers."""

    def __init__(self, parts: _Parts, delays_us: list[int], n: int) -> None:
        self.best: tuple[int, ...] = ()
        self.value = -1.0
        self._delay_us = 0
        self._parts = parts
        self._delays_us = delays_us
        self._n = n
        self._effort = 0

    def visit(self, chosen: tuple[int, ...], union: _Union, candidates: list[int]) -> None:
        """Visit all combinations that extend `chosen` with candidates and may be the best."""
        masks = self._parts.masks
        gains = {each: union.gain(masks[each], self._parts) for each in candidates}
        self._effort += len(candidates) * (1 + union.size())
        ranked = sorted(candidates, key=lambda each: (-gains[each], self._delays_us[each], each))
        slots = self._n - len(chosen)
        if slots == 1:
            for each in ranked:
                self._consider((*chosen, each), union.value + gains[each])
            return
        for place in range(len(ranked) - slots + 1):
            rest = ranked[place:]
            if not self._may_win(chosen, union, rest, gains):
                return
            taken = rest[0]
            self.visit(
                (*chosen, taken),
                union.with_path(masks[taken], gains[taken], self._parts),
                rest[1:],
            )

    def _consider(self, chosen: tuple[int, ...], value: float) -> None:
        delay_us = sum(self._delays_us[each] for each in chosen)
        if value > self.value + _SAME or (
            value >= self.value - _SAME and delay_us < self._delay_us
        ):
            self.best = chosen
            self.value = value
            self._delay_us = delay_us

    def _may_win(
        self, chosen: tuple[int, ...], union: _Union, rest: list[int], gains: dict[int, float]
    ) -> bool:
        if not self.best:
            return True
        if self._effort > _MAX_TERMS:
            return False
        slots = self._n - len(chosen)
        bound = self._bound(union.value, rest, slots, gains)
        if abs(bound - self.value) > _SAME:
            return bound > self.value
        shortest = sorted(self._delays_us[each] for each in rest)[:slots]
        return sum(self._delays_us[each] for each in chosen) + sum(shortest) < self._delay_us

    def _bound(self, value: float, rest: list[int], slots: int, gains: dict[int, float]) -> float:
        """Upper bound with `slots` more paths of `rest`, which is ranked by gain."""
        together = value + sum(gains[each] for each in rest[:slots])
        likeliest = sorted((self._parts.up(self._parts.masks[each]) for each in rest), reverse=True)
        down = 1 - value
        for up in likeliest[:slots]:
            down *= 1 - up
        return min(together, 1 - down)
