"""Who is told of changes: one after the other, also where being told changes something more.

A watcher that fails keeps no other from hearing, nor itself from what comes next: its error is
raised when all have heard all.
"""

from __future__ import annotations

from collections.abc import Callable

from accord.core.overlay.origin_replica import Change

Watcher = Callable[[str, str, bytes | None], None]  # origin, key, value


class Watchers:
    def __init__(self) -> None:
        self._by_kind: dict[str, list[Watcher]] = {}
        self._changes: list[tuple[str, Change]] = []
        self._is_telling = False

    def add(self, kind: str, watcher: Watcher) -> None:
        self._by_kind.setdefault(kind, []).append(watcher)

    def tell(self, origin: str, changes: list[Change]) -> None:
        """All that watch such changes; while some are being told, after those."""
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
                        except Exception as error:  # whatever it is, others hear of it
                            failure = failure or error
        finally:
            self._is_telling = False
        if failure is not None:
            raise failure
