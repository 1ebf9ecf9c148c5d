"""Passwords that wait to be verified: a few at a time, those of all addresses in turn.

An address has a share of the queue. If the whole queue is full, the address with the longest share
loses its newest: however many one address sends, others wait for one of its passwords at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec import Struct

from accord.core.model.errors import AccordError


class VerificationLimits(Struct, frozen=True, kw_only=True):
    """How many verifications run and wait at a time, and how many successes are cached."""

    threads: int = 2
    waiting: int = 64  # of one address
    waiting_in_all: int = 512
    remembered: int = 10_000
    remembered_s: float = 600.0


class BusyError(AccordError):
    """Too many verifications are queued: the client should retry later."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        super().__init__(f"{waiting} passwords are waiting to be verified, try again later")


class _Waiting(Struct, frozen=True, eq=False):
    key: bytes
    source: str
    work: Callable[[], bool]
    result: asyncio.Future[bool]


class PasswordQueue:
    """Verifications by the key of their credentials; `source` is the address they come from."""

    def __init__(self, limits: VerificationLimits) -> None:
        self._limits = limits
        self._open: dict[bytes, _Waiting] = {}  # waiting or running
        self._held: Counter[str] = Counter()  # of them, by source
        self._queues: dict[str, deque[_Waiting]] = {}  # none is empty, the next one first
        self._running = 0
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="accord-password")

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: bytes) -> asyncio.Future[bool] | None:
        """The result of the same credentials, if they are waiting already."""
        found = self._open.get(key)
        return None if found is None else found.result

    def put(self, key: bytes, source: str, work: Callable[[], bool]) -> asyncio.Future[bool]:
        """The result of `work`, done in a thread; raises `BusyError` if the queue is full."""
        if self._held[source] >= self._limits.waiting:
            raise BusyError(self._held[source])
        if len(self._open) >= self._limits.waiting_in_all:
            self._displace_for(source)
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        added = self._open[key] = _Waiting(key, source, work, result)
        self._held[source] += 1
        self._queues.setdefault(source, deque()).append(added)
        self._start()
        return result

    def close(self) -> None:
        """Abandon what waits; what runs ends by itself."""
        self._queues.clear()
        for each in self._open.values():
            each.result.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _displace_for(self, source: str) -> None:
        longest = max(self._queues, key=lambda each: len(self._queues[each]), default=source)
        if self._held[longest] <= self._held[source] + 1:
            raise BusyError(len(self._open))
        displaced = self._queues[longest].pop()
        if not self._queues[longest]:
            del self._queues[longest]
        self._remove(displaced)
        displaced.result.set_exception(BusyError(len(self._open)))
        displaced.result.exception()  # its clients may be gone: nobody else would look at it

    def _start(self) -> None:
        while self._queues and self._running < self._limits.threads:
            source, queue = next(iter(self._queues.items()))
            started = queue.popleft()
            del self._queues[source]
            if queue:
                self._queues[source] = queue  # after all others
            self._running += 1
            loop = asyncio.get_running_loop()
            done = loop.run_in_executor(self._pool, started.work)
            done.add_done_callback(partial(self._end, started))

    def _end(self, ended: _Waiting, done: asyncio.Future[bool]) -> None:
        self._running -= 1
        self._remove(ended)
        if done.cancelled():
            ended.result.cancel()
        elif not ended.result.done():
            if error := done.exception():
                ended.result.set_exception(error)
            else:
                ended.result.set_result(done.result())
        self._start()

    def _remove(self, each: _Waiting) -> None:
        del self._open[each.key]
        self._held[each.source] -= 1
        if not self._held[each.source]:
            del self._held[each.source]
