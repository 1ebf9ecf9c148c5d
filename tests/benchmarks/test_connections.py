"""Idle connections are held and reached, or it is noticed that they are not."""

from __future__ import annotations

import os

import pytest
from benchmarks.connections import hold
from benchmarks.contenders import CONTENDERS, Broker
from tests.benchmarks.relay import relay

from accord.apps.load.frames import LoadError
from benchmarks import connections


def _broker(port: int) -> Broker:
    return Broker(CONTENDERS[0], os.getpid(), port)


def test_connections_are_held_and_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SETTLE_S", 0)
    monkeypatch.setattr(connections, "_FIRST", 20)
    with relay() as port:
        held = hold(_broker(port), 120)
    assert (held.count, held.reached) == (100, 100)
    assert held.cpu_us > 0


def test_a_silent_subscriber_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SETTLE_S", 0)
    monkeypatch.setattr(connections, "_FIRST", 1)
    monkeypatch.setattr("benchmarks.contenders._PATIENCE_S", 0.2)
    with relay(loses_every=50) as port, pytest.raises((OSError, LoadError)):
        hold(_broker(port), 100)
