"""What the scripts that kill have in common: their options, and how they tell."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

Say = Callable[[str], None]


def options_of(
    about: str, *, kills: int, life_s: float, rate_hz: int, rate_of: str
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--kills", type=int, default=kills, help=f"how often (default: {kills})")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument(
        "--life", type=float, default=life_s, metavar="S", help=f"at most ({life_s:g} s)"
    )
    parser.add_argument("--rate", type=int, default=rate_hz, metavar="HZ", help=f"of {rate_of}")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave all files here")
    return parser


@contextmanager
def working_in(keep: Path | None) -> Iterator[tuple[Path, Say]]:
    """A folder that goes unless it is to be kept, and how to say what happens when."""
    began_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="accord-kills-") as folder:
        if keep is not None:
            keep.mkdir(parents=True)
        yield keep or Path(folder), say
    print(f"\n{'took':<28} {time.monotonic() - began_s:.0f} s")


def show(rows: Iterable[tuple[str, object]], remarks: Iterable[str]) -> None:
    for name, value in rows:
        print(f"{name:<28} {value}")
    for remark in remarks:
        print(f"  {remark}")
