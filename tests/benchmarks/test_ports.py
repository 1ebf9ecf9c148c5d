"""Ports that are free, and given to nobody else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from benchmarks.ports import free_port, free_ports

_HOST = "127.0.0.1"
_MANY = 600  # more than one process has
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_they_differ() -> None:
    assert len(set(free_ports(100))) == 100


def test_who_connects_does_not_get_one() -> None:
    first = int(_OUTGOING.read_text().split()[0]) if _OUTGOING.exists() else 32_768
    assert max(free_ports(_MANY)) < first


def test_what_is_taken_is_not_given() -> None:
    with socket.create_server((_HOST, free_port())) as taken:
        found = free_ports(_MANY)
        assert taken.getsockname()[1] not in found


def test_two_processes_share_none() -> None:
    mine = set(free_ports(_MANY))
    code = f"from benchmarks.ports import free_ports; print(*free_ports({_MANY}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    theirs = set(map(int, other.stdout.split()))
    assert theirs
    assert not mine & theirs


def test_a_process_that_is_forked_has_its_own() -> None:
    mine = set(free_ports(_MANY))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(free_port()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 10)) not in mine
    os.close(reading)
    os.close(writing)
