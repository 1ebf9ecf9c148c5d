"""Starts Accord so that signals switch its ledger: SIGUSR1 off, SIGUSR2 on.

A script for any build's own Python, which does not have these benchmarks: nothing else is imported.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from accord.__main__ import main
from accord.runtime.ledger_store import LedgerStore

_ledgers: list[Any] = []
_original = LedgerStore.__init__


def _remember(store: LedgerStore, ledger: Any, *args: Any, **kwargs: Any) -> None:
    _ledgers.append(ledger)
    _original(store, ledger, *args, **kwargs)


def _switch(number: int, _: object) -> None:
    if not _ledgers:
        sys.exit("there is no ledger to switch")
    for ledger in _ledgers:
        ledger.is_on = number == signal.SIGUSR2


if __name__ == "__main__":
    LedgerStore.__init__ = _remember  # type: ignore[method-assign, assignment]
    for each in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, _switch)
    main()
