"""Callbacks for changes of state records, called in order even if a callback causes changes.

A failing watcher does not keep others, or itself, from later changes: the first error is raised
after all changes have been reported to all watchers.
"""

from __future__ import annotations

from collections.abc import Callable

from accord.core.overlay.origin_replica import Change

Watcher = Callable[[str, str, bytes | None], None]  # origin, key, value


class Watchers:
    """Watchers of one state store, by kind of record."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Watcher]] = {}
        self._changes: list[tuple[str, Change]] = []
        self._is_telling = False

    def add(self, kind: str, watcher: Watcher) -> None:
        self._by_kind.setdefault(kind, []).append(watcher)

    def tell(self, origin: str, changes: list[Change]) -> None:
        """Report changes to the watchers of their kind; reentrant calls are queued."""
        self._changes += [(origin, each) for each in changes if each[0] in self._by_kind]
        if self._is_telling:
            return
        self._is_telling = True
        failure: Exception | None = None
        try:
            while self._changes:
                told, self._changes = self._changes, []
                for by, (kind, key, value) in told:
                    for watcher in list(self._by_kind[kind]):
                        try:
                            watcher(by, key, value)
                        except Exception as error:  # the remaining watchers are called anyway
                            failure = failure or error
        finally:
            self._is_telling = False
        if failure is not None:
            raise failure
