"""Processes of others: started for a benchmark, watched from outside, gone at the end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_STOP_S: Final = 30
_NANO: Final = 1e-9
# Which of a process's clocks: the scheduler's, exact to nanoseconds (`stat` counts hundredths).
_SCHEDULER_CLOCK: Final = 2


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, politely if it can."""
    with open(log or "/dev/null", "wb") as output:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_s(process_ids: Sequence[int]) -> float:
    """CPU time that these processes have used so far, in user and kernel, all threads."""
    return _NANO * sum(time.clock_gettime_ns(_clock(each)) for each in process_ids)


def memory_bytes(process_ids: Sequence[int]) -> int:
    """Resident memory of these processes; what several processes share counts once."""
    return sum(map(_proportional_bytes, process_ids))


def with_children(process_id: int) -> list[int]:
    """The process, its children and theirs."""
    parents = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal() and (parent := _parent(folder)) is not None:
            parents[int(folder.name)] = parent
    family = [process_id]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _clock(process_id: int) -> int:
    # As clock_getcpuclockid(3) makes it, which Python has for threads only.
    return (~process_id << 3) | _SCHEDULER_CLOCK


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended in the meantime
        return None


def _proportional_bytes(process_id: int) -> int:
    for line in (_PROC / str(process_id) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells no Pss")
