"""Slow links that are really slow: `tbf` in a network namespace between two others.

The node is in the namespace `near`, its subscriber in `far`; what goes from one to the other passes
a third one, which forwards it at the link's rate and has a queue for a fifth of a second, as a
radio or a modem has. So the queue is beyond the node's machine, where it can't see it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

NODE_HOST: Final = "10.77.1.1"
FAR_HOST: Final = "10.77.2.1"
MISSING: Final = "needs root, and `ip` and `tc` of iproute2"

_PREFIX: Final = "accord-bench"
_BURST_BYTES: Final = 3_000
_QUEUE_MS: Final = 200
_SEGMENT: Final = 1_448
_PORT: Final = 5_000
_RATE: Final = re.compile(r"(\d+) bytes/s")


class WireError(Exception):
    """A link can't be made, or does not carry anything."""


class Wire:
    """A link between two namespaces; `near` and `far` begin commands that run in them."""

    def __init__(self, name: str, kbps: int) -> None:
        self.kbps = kbps
        self.near = ("ip", "netns", "exec", f"{name}-near")
        self.far = ("ip", "netns", "exec", f"{name}-far")
        self._middle = f"{name}-mid"

    def change(self, kbps: int) -> None:
        """Another rate from now on, both ways; nobody is told."""
        self._shape("change", kbps)

    def measure(self, seconds: float) -> float:
        """Bytes per second that a plain TCP transfer gets through."""
        command = [sys.executable, "-m", "benchmarks.table2.transfer"]
        window = max(8 * _SEGMENT, self.kbps * 125 * _QUEUE_MS // 2_000)
        receiver = subprocess.Popen(
            [*self.far, *command, "receive", FAR_HOST, str(_PORT), str(seconds), str(window)],
            stdout=subprocess.PIPE,
            text=True,
        )
        sender = subprocess.Popen([*self.near, *command, "send", FAR_HOST, str(_PORT)])
        try:
            answer, _ = receiver.communicate(timeout=seconds + 30)
        finally:
            for process in (sender, receiver):
                process.kill()
                process.wait()
        found = _RATE.search(answer)
        if found is None:
            raise WireError(f"the plain transfer says no rate: {answer[:80]!r}")
        return float(found[1])

    def make(self) -> None:
        near, middle, far = (self.near[-1], self._middle, self.far[-1])
        for space in (near, middle, far):
            _ip("netns", "add", space)
        for space, device, host in ((near, "near", NODE_HOST), (far, "far", FAR_HOST)):
            gateway = f"{host.rpartition('.')[0]}.2"
            _ip("link", "add", "e0", "netns", space, "type", "veth",
                "peer", "name", device, "netns", middle)  # fmt: skip
            for where, name, address in ((space, "e0", host), (middle, device, gateway)):
                _ip("-n", where, "addr", "add", f"{address}/24", "dev", name)
                # Single packets, as they are on a wire.
                _ip("-n", where, "link", "set", "dev", name, "gso_max_segs", "1")
                _ip("-n", where, "link", "set", "dev", name, "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "route", "add", "default", "via", gateway)
        forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run(["ip", "netns", "exec", middle, "sh", "-c", forwarding])
        self._shape("add", self.kbps)

    def remove(self) -> None:
        for space in (self.near[-1], self._middle, self.far[-1]):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)

    def _shape(self, verb: str, kbps: int) -> None:
        self.kbps = kbps
        for device in ("near", "far"):
            _run(["tc", "-n", self._middle, "qdisc", verb, "dev", device, "root", "tbf",
                  "rate", f"{kbps}kbit", "burst", str(_BURST_BYTES),
                  "latency", f"{_QUEUE_MS}ms"])  # fmt: skip


def missing() -> str | None:
    """Why there can be no links here."""
    if os.geteuid() != 0 or any(shutil.which(each) is None for each in ("ip", "tc")):
        return MISSING
    try:
        with wires([100]):
            return None
    except WireError as error:
        return f"{MISSING}; here: {error}"


@contextmanager
def wires(rates_kbps: Sequence[int]) -> Iterator[list[Wire]]:
    """Links of these rates, gone with the block."""
    _sweep()
    with ExitStack() as stack:
        made = []
        for number, kbps in enumerate(rates_kbps):
            wire = Wire(f"{_PREFIX}-{os.getpid()}-{number}", kbps)
            stack.callback(wire.remove)
            wire.make()
            made.append(wire)
        yield made


def _sweep() -> None:
    """Take away what a run that was killed has left."""
    listed = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True)
    for space in re.findall(rf"{_PREFIX}-(?:\d+)-\d+-\w+", listed.stdout):
        if not Path(f"/proc/{space.removeprefix(_PREFIX).split('-')[1]}").exists():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise WireError(f"`{' '.join(command)}`: {done.stderr.strip()}")
