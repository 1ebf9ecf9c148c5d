from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from accord.pipeline.driver_lock import DriverLock, Holder, started_of

HOLD = """
import sys
from accord.pipeline.driver_lock import DriverLock
lock = DriverLock(sys.argv[1])
assert lock.try_acquire() is None
lock.record(int(sys.argv[2]))
print("locked", flush=True)
sys.stdin.read()
"""


def hold(work: Path, java: int) -> subprocess.Popen[bytes]:
    """Another process that has the lock until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(work), str(java)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_only_one_has_the_lock_and_the_other_learns_who(tmp_path: Path) -> None:
    process = hold(tmp_path, 1)
    try:
        holder = DriverLock(tmp_path).try_acquire()
        assert holder is not None
        assert (holder.process, holder.java) == (process.pid, 1)
    finally:
        end(process)
    assert DriverLock(tmp_path).try_acquire() is None


def test_a_released_lock_can_be_had_again(tmp_path: Path) -> None:
    first, second = DriverLock(tmp_path), DriverLock(tmp_path)
    assert first.try_acquire() is None
    assert second.try_acquire() is not None
    first.release()
    assert second.try_acquire() is None


def test_a_successor_waits_for_the_java_of_a_killed_driver(tmp_path: Path) -> None:
    java = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    end(hold(tmp_path, java.pid))
    waited = threading.Event()
    lock = DriverLock(tmp_path)

    class Stopping(threading.Event):
        """Java ends while we wait."""

        def wait(self, timeout: float | None = None) -> bool:
            waited.set()
            end(java)
            return super().wait(timeout)

    assert lock.acquire(Stopping(), lambda _: None)
    assert waited.is_set()
    assert lock.try_acquire() is not None


def test_a_later_process_with_the_same_number_is_not_waited_for(tmp_path: Path) -> None:
    lock = DriverLock(tmp_path)
    assert lock.try_acquire() is None
    lock.record(os.getpid())
    lock.release()
    text = (tmp_path / "driver.lock").read_text()
    (tmp_path / "driver.lock").write_text(text.replace(started_of(os.getpid()), "1"))
    stopping = threading.Event()
    stopping.set()  # so that waiting would end in vain
    assert DriverLock(tmp_path).acquire(stopping, lambda _: None)


def test_who_is_to_stop_does_not_wait_on(tmp_path: Path) -> None:
    lock, told = DriverLock(tmp_path), list[Holder]()
    assert lock.try_acquire() is None
    lock.record(None)
    stopping = threading.Event()
    stopping.set()
    assert not DriverLock(tmp_path).acquire(stopping, told.append)
    assert told == [Holder(os.getpid())]


def test_a_file_that_says_nothing_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "driver.lock").write_text("{what?")
    assert DriverLock(tmp_path).acquire(threading.Event(), lambda _: None)
