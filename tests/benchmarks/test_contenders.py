"""Brokers start, are measured with their children, end with the benchmark, or are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest
from benchmarks.contenders import Contender, running
from benchmarks.options import Options
from benchmarks.processes import cpu_s, memory_bytes, started, with_children

from benchmarks import __main__, contenders

_CHILD = "sum(range(3_000_000)); print('busy', flush=True); input()"
_PARENT = f"""
import subprocess, sys
pipe = subprocess.PIPE
child = subprocess.Popen([sys.executable, "-c", {_CHILD!r}], stdin=pipe, stdout=pipe)
child.stdout.readline()
print("ready", flush=True)
input()
child.communicate(b"end")
"""
_LISTENER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


def _script(text: str) -> Contender:
    return Contender(
        "mosquitto", lambda: None, lambda _, port, __: [sys.executable, "-c", text, str(port)]
    )


def test_cpu_and_memory_include_children() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    family = with_children(parent.pid)
    assert len(family) == 2
    assert cpu_s(family) > cpu_s([parent.pid]) > 0
    assert memory_bytes(family) > memory_bytes([parent.pid]) > 1_000_000
    parent.communicate(b"end")


def test_cpu_of_this_process_is_what_it_used() -> None:
    before_s = process_time()
    used_s = cpu_s([os.getpid()])
    assert before_s <= used_s <= process_time()


def test_a_process_ends_with_its_block(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with started([sys.executable, "-c", "print('hello'); input()"], os.environ, log) as process:
        pass
    assert process.returncode is not None


def test_contenders_that_listen_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "CONTENDERS", [_script(_LISTENER)])
    with running(Options(), suits=lambda _: True) as field:
        assert [broker.name for broker in field.brokers] == ["mosquitto"]
        assert field.absent == []
        field.brokers[0].connect().close()
    with pytest.raises(ConnectionRefusedError):
        field.brokers[0].connect()


def test_contenders_that_are_missing_or_fail_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Contender("nats", lambda: "nowhere to be found", lambda *_: [])
    broken = _script("raise SystemExit('no such option')")
    monkeypatch.setattr(contenders, "CONTENDERS", [missing, broken])
    with running(Options(), suits=lambda _: True) as field:
        assert field.brokers == []
        assert field.absent == [
            "Left out: nats, nowhere to be found.",
            "Left out: mosquitto, it ended at once with code 1: no such option.",
        ]
    with running(Options(contenders=("accord",)), suits=lambda _: True) as field:
        assert field.absent == []


def test_an_unknown_contender_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["brokers", "--contenders", "mosquito"])
    assert "expected some of mosquitto, nats, accord, got mosquito" in (capsys.readouterr().err)
