"""Every message has its latency, measured on whatever answers."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from benchmarks.contenders import CONTENDERS, Broker
from benchmarks.latency import Path
from benchmarks.load import Shape
from benchmarks.race import Case
from tests.benchmarks.relay import relay


@pytest.mark.parametrize("qos", [0, 1])
def test_each_message_has_a_latency(qos: int) -> None:
    with relay() as port, ExitStack() as stack:
        broker = Broker(CONTENDERS[0], os.getpid(), port)
        path = Path(broker, Case(Shape("1→1"), 100, qos), stack)
        path.round(5)
        path.round(5)
        assert len(path.latencies_us) == 10
        assert min(path.latencies_us) > 0
