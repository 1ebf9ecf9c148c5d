"""What a node needs of the others: all that its clients subscribed to, said as shortly as possible.

A need is a filter, with a predicate or without. What another need covers is not announced: a filter
within a wider one without a predicate, and a predicate within another of the same filter. Where a
filter has many predicates the filter alone is announced: too much may come, never too little.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.channels import ChannelMap, filter_covers
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.relations import covers

MANY: Final = 32  # predicates of a filter

Condition = tuple[str, str]  # a selector and an XPath, of which one at most is given
_NONE: Final[Condition] = ("", "")


class Need(msgspec.Struct, frozen=True, array_like=True):
    """As nodes tell it to each other."""

    filter: str
    where: str = ""
    xpath: str = ""


class _Wishes:
    """Of one filter: how many subscriptions have which condition, and what is announced of them."""

    def __init__(self) -> None:
        self.counts: dict[Condition, int] = {}
        self.predicates: dict[Condition, Predicate] = {}
        self.widest: dict[Condition, bool] = {}  # those that no other covers

    def is_plain(self) -> bool:
        return _NONE in self.counts or len(self.widest) > MANY

    def add(self, condition: Condition, predicate: Predicate | None) -> bool:
        """False where it was there already."""
        self.counts[condition] = self.counts.get(condition, 0) + 1
        if self.counts[condition] > 1:
            return False
        if predicate is not None:
            self.predicates[condition] = predicate
            self._widen(condition, predicate)
        return True

    def remove(self, condition: Condition) -> bool:
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

    def _widen(self, condition: Condition, predicate: Predicate) -> None:
        if len(self.widest) <= MANY:  # beyond that nobody asks which
            for other in self.widest:
                if covers(self.predicates[other], predicate):
                    return
            for other in list(self.widest):
                if covers(predicate, self.predicates[other]):
                    del self.widest[other]
        self.widest[condition] = True


class Needs:
    """`changes` has what is to be announced (or taken back: None) under which key."""

    def __init__(self) -> None:
        self.announced: dict[str, dict[Need, str]] = {}  # by filter: under which key
        self._wishes: dict[str, _Wishes] = {}
        self._wide: ChannelMap[str] = ChannelMap()  # filters without predicate that may cover
        self._dirty: dict[str, bool] = {}
        self._last_key = 0

    def add(self, pattern: str, condition: Condition, predicate: Predicate | None) -> None:
        wishes = self._wishes.setdefault(pattern, _Wishes())
        was_plain = wishes.is_plain()
        if wishes.add(condition, predicate):
            self._changed(pattern, wishes, was_plain=was_plain)

    def remove(self, pattern: str, condition: Condition) -> None:
        wishes = self._wishes[pattern]
        was_plain = wishes.is_plain()
        if wishes.remove(condition):
            if not wishes.counts:
                del self._wishes[pattern]
            self._changed(pattern, wishes, was_plain=was_plain)

    def has_changed(self) -> bool:
        return bool(self._dirty)

    def changes(self) -> list[tuple[str, Need | None]]:
        """Since the last time."""
        if not self._dirty:
            return []
        changed: list[tuple[str, Need | None]] = []
        for pattern in self._dirty:
            before, wanted = self.announced.pop(pattern, {}), self._wanted(pattern)
            now: dict[Need, str] = {}
            for need in wanted:
                key = before.pop(need, "")
                if not key:
                    self._last_key += 1
                    key = str(self._last_key)
                    changed.append((key, need))
                now[need] = key
            changed += [(key, None) for key in before.values()]
            if now:
                self.announced[pattern] = now
        self._dirty.clear()
        return changed

    def check_invariants(self) -> None:
        """All that is wished is covered by something that is announced."""
        if self._dirty:
            return
        for pattern, wishes in self._wishes.items():
            for condition in wishes.counts:
                assert any(
                    self._says(need, pattern, condition)
                    for needs in self.announced.values()
                    for need in needs
                )

    def _says(self, need: Need, pattern: str, condition: Condition) -> bool:
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

    def _changed(self, pattern: str, wishes: _Wishes, *, was_plain: bool) -> None:
        self._dirty[pattern] = True
        is_plain = bool(wishes.counts) and wishes.is_plain()
        if is_plain == was_plain or not ("+" in pattern or "#" in pattern):
            return
        if is_plain:
            self._wide.set(pattern, pattern)
        else:
            self._wide.remove(pattern)
        for other in self._wishes:
            if filter_covers(pattern, other):
                self._dirty[other] = True

    def _wanted(self, pattern: str) -> dict[Need, bool]:
        """What is to be announced of one filter."""
        wishes = self._wishes.get(pattern)
        if wishes is None or self._is_covered(pattern):
            return {}
        if wishes.is_plain():
            return {Need(pattern): True}
        return {Need(pattern, where, xpath): True for where, xpath in wishes.widest}

    def _is_covered(self, pattern: str) -> bool:
        # The map takes wildcards of `pattern` for names, and so may find too many.
        return any(
            wide != pattern and filter_covers(wide, pattern) for wide in self._wide.select(pattern)
        )
