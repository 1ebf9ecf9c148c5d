"""Recently refused neighbours and why: logged once, and listed while they keep trying."""

from __future__ import annotations

from typing import Final

from accord.core.links.errors import LinkError
from accord.core.overlay.status import RefusedLinkStatus

_MOST: Final = 64
_KEPT_US: Final = 90_000_000  # a neighbour retries within half a minute


class _Refusal:
    def __init__(self, error: LinkError, now_us: int) -> None:
        self.error = error
        self.first_us = self.last_us = now_us
        self.attempts = 0


class RefusedLinks:
    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], _Refusal] = {}  # latest last

    def note(self, node: str, address: str, error: LinkError, now_us: int) -> bool:
        """Record a refusal; returns whether it is new or has a new cause."""
        self._forget(now_us)
        known = self._by_name.pop((node, address), None)
        is_news = known is None or str(known.error) != str(error)
        if known is None or is_news:
            known = _Refusal(error, now_us)
        known.last_us = now_us
        known.attempts += 1
        self._by_name[node, address] = known
        if len(self._by_name) > _MOST:
            del self._by_name[next(iter(self._by_name))]
        return is_news

    def linked(self, node: str, address: str) -> None:
        self._by_name.pop((node, address), None)

    def status(self, now_us: int) -> tuple[RefusedLinkStatus, ...]:
        self._forget(now_us)
        return tuple(
            RefusedLinkStatus(
                node=node,
                address=address,
                problem=str(each.error),
                remedy=each.error.remedy,
                attempts=each.attempts,
                since_s=(now_us - each.first_us) // 1_000_000,
            )
            for (node, address), each in self._by_name.items()
        )

    def _forget(self, now_us: int) -> None:
        for at, each in list(self._by_name.items()):
            if each.last_us + _KEPT_US > now_us:
                return
            del self._by_name[at]
