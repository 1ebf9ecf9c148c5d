"""FIFO of demands to re-evaluate; urgent ones first, each at most once."""

from __future__ import annotations

from collections.abc import Iterable


class DemandQueue:
    def __init__(self) -> None:
        self._urgent: dict[str, bool] = {}
        self._others: dict[str, bool] = {}

    def __len__(self) -> int:
        return len(self._urgent) + len(self._others)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._urgent or id_ in self._others

    def add(self, ids: Iterable[str]) -> None:
        """Appends demands at the end."""
        others = dict.fromkeys(ids, True)  # thousands may depend on one profile
        for id_ in self._urgent.keys() & others.keys():
            del others[id_]
        self._others |= others

    def add_urgent(self, ids: Iterable[str]) -> None:
        """Inserts demands before all that are not urgent."""
        for id_ in ids:
            self._others.pop(id_, None)
            self._urgent[id_] = True

    def remove(self, id_: str) -> None:
        self._urgent.pop(id_, None)
        self._others.pop(id_, None)

    def take(self) -> str | None:
        for ids in (self._urgent, self._others):
            for id_ in ids:
                del ids[id_]
                return id_
        return None

    def check_invariants(self) -> None:
        assert not self._urgent.keys() & self._others.keys()
