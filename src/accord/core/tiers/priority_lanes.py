"""Priority queue of waiting events: which is sent next, and which is shed for lack of space.

More important events go first. Ordered events of one channel form one line, which stands in the
lane of its most important event, so that an important event pulls those before it along. The lines
of a lane take turns (round robin).
"""

from __future__ import annotations

from typing import Final

from accord.core.model.units import IMPORTANCES

_MOST: Final = IMPORTANCES - 1
_ORDERED: Final = -1

_Key = tuple[str, int]  # channel; importance if unordered, else _ORDERED


class _Line:
    """Importance of each event by place; `counts` has the number of events per importance."""

    __slots__ = ("counts", "lane", "places")

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.counts = [0] * IMPORTANCES
        self.lane = _ORDERED  # in no lane


class PriorityLanes:
    """Queue of places; later places are larger."""

    def __init__(self) -> None:
        self._keys: dict[int, _Key] = {}  # by place
        self._lines: dict[_Key, _Line] = {}
        self._lanes: list[dict[_Key, bool]] = [{} for _ in range(IMPORTANCES)]
        self._droppable: list[dict[int, bool]] = [{} for _ in range(IMPORTANCES)]

    def __len__(self) -> int:
        return len(self._keys)

    def put(
        self, place: int, channel: str, importance: int, *, is_in_order: bool, is_droppable: bool
    ) -> None:
        """Add an event; with `is_droppable`, it may be shed."""
        importance = min(max(importance, 0), _MOST)
        key = (channel, _ORDERED if is_in_order else importance)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        self._keys[place] = key
        line.places[place] = importance
        line.counts[importance] += 1
        if importance > line.lane:
            self._change_lane(key, line, importance)
        if is_droppable:
            self._droppable[importance][place] = True

    def take(self) -> int:
        """Remove the next event and return its place."""
        lane = next(each for each in reversed(self._lanes) if each)
        key = next(iter(lane))
        place = next(iter(self._lines[key].places))
        self.remove(place)
        if key in lane:
            del lane[key]  # round robin
            lane[key] = True
        return place

    def remove(self, place: int) -> None:
        """Remove an event, if it is queued."""
        key = self._keys.pop(place, None)
        if key is None:
            return
        line = self._lines[key]
        importance = line.places.pop(place)
        self._droppable[importance].pop(place, None)
        line.counts[importance] -= 1
        lane = line.lane
        while lane >= 0 and not line.counts[lane]:
            lane -= 1
        if lane < line.lane:
            self._change_lane(key, line, lane)
        if lane < 0:
            del self._lines[key]

    def least(self, below: int = IMPORTANCES) -> int | None:
        """The event to shed: the oldest of the least important; None if none may be shed."""
        for waiting in self._droppable[: max(below, 0)]:
            for place in waiting:
                return place
        return None

    def oldest(self, channel: str) -> int | None:
        """The oldest event of a channel; if unordered, among its least important."""
        for kind in range(_ORDERED, IMPORTANCES):
            line = self._lines.get((channel, kind))
            if line is not None:
                return next(iter(line.places))
        return None

    def check_invariants(self) -> None:
        assert len(self._keys) == sum(len(line.places) for line in self._lines.values())
        for key, line in self._lines.items():
            assert list(line.places) == sorted(line.places)
            assert line.lane == max(line.places.values())
            assert [key in lane for lane in self._lanes].index(True) == line.lane
            assert all(self._keys[place] == key for place in line.places)
            for importance, count in enumerate(line.counts):
                assert count == list(line.places.values()).count(importance)
        assert len(self._lines) == sum(len(lane) for lane in self._lanes)
        assert all(place in self._keys for waiting in self._droppable for place in waiting)

    def _change_lane(self, key: _Key, line: _Line, lane: int) -> None:
        if line.lane >= 0:
            del self._lanes[line.lane][key]
        if lane >= 0:
            self._lanes[lane][key] = True
        line.lane = lane
