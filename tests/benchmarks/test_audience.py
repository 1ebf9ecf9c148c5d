"""Filters select the channel, deliveries are those of the index, and wrong ones are noticed."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing

import pytest
from benchmarks.audience import SESSIONS, Audience, Expected
from benchmarks.contenders import CONTENDERS, Broker
from benchmarks.filters import CHANNEL, filters
from tests.benchmarks.relay import relay

from accord.apps.load.frames import LoadError
from accord.core.model.channels import filter_selects, problem_with_filter
from accord.predicates import Event, parse

EVENTS = [Event(channel=CHANNEL, attributes={"height": height}) for height in range(60)]
# The first two belong to one session, as does every thousandth.
PREDICATES = [
    (0, parse("height >= 0")),
    (SESSIONS, parse("height < 10")),
    (1, parse("height >= 0")),
]


def _broker(port: int) -> Broker:
    return Broker(CONTENDERS[0], os.getpid(), port)


def test_filters_differ_and_select_the_channel() -> None:
    found = list(filters(CHANNEL))
    assert len(set(found)) == len(found) == 64 + 127
    assert found[0] == CHANNEL
    for pattern in found:
        assert problem_with_filter(pattern) is None
        assert filter_selects(pattern, CHANNEL)


def test_a_session_gets_an_event_once() -> None:
    expected = Expected(EVENTS)
    expected.add(PREDICATES)
    assert expected.matches() == 60 + 10 + 60
    assert expected.deliveries() == Counter(
        (session, number) for session in (0, 1) for number in range(60)
    )


def test_deliveries_are_checked_and_counted() -> None:
    """The relay knows no predicates: right as long as they select everything."""
    expected = Expected(EVENTS)
    expected.add(PREDICATES)
    with relay() as port, closing(Audience(_broker(port), EVENTS)) as audience:
        audience.gather(PREDICATES[::2])
        audience.subscribe(PREDICATES[::2])
        deliveries = expected.deliveries()
        audience.check(deliveries)
        size = audience.size_of(deliveries)
        assert audience.run(3, size) > 0
        # Sessions block again for this, and don't after it.
        audience.check(deliveries)
        with pytest.raises(LoadError, match="1 deliveries differ"):
            audience.check(deliveries - Counter([(1, 59)]))
        with pytest.raises(LoadError, match="bytes came, not"):
            audience.run(1, size - 1)
