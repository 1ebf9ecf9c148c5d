"""Ports for what tests and benchmarks start, also when several of them run at a time.

They lie below the range from which systems choose the ports of outgoing connections, so that none
of those takes one before its server listens. Each process has a block of them as long as it lives:
it listens on the first one itself, which nobody else can then.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle
from typing import Final

_HOST: Final = "127.0.0.1"
_BLOCK: Final = 500
_BLOCKS: Final = range(12_000, 32_000, _BLOCK)


def free_port() -> int:
    """Nobody listens there, and none of the last hundreds of ports is given again."""
    _, ports = _block(os.getpid())
    return next(port for port in ports if _is_free(port))


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


@cache
def _block(_process_id: int) -> tuple[socket.socket, Iterator[int]]:
    for first in random.sample(_BLOCKS, len(_BLOCKS)):
        with suppress(OSError):
            claim = socket.create_server((_HOST, first))
            return claim, cycle(range(first + 1, first + _BLOCK))
    raise RuntimeError(f"no block of {_BLOCK} ports is free: too many tests run at a time")


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.socket() as trial:
        trial.bind((_HOST, port))
        return True
    return False
