"""Advertisements and refusals as Python programs see them, without asyncio too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import accord
from accord.client.errors import AdvertisementError, RefusedError, refused_subscription
from accord.core.mqtt.codes import Reason
from tests.brokers import HOST, accord_only, start_accord

CONFIG = """
[node]
name = "gate"
[admission]
mode = "enforce"
event_bytes = 1000
memory_bytes = 30_000
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_accord(config=CONFIG) as broker:
        yield f"mqtt://{HOST}:{broker.port}"


@accord_only
def test_without_asyncio(url: str) -> None:
    with accord.connect_sync(url) as session:
        with session.advertise("a", rate_hz=1) as advertised:
            assert (advertised.name, advertised.mode) == ("a", "enforce")
            with session.subscribe("a") as events:
                assert events.admitted == 1
            advertised.update(100)
            with pytest.raises(accord.AdmissionRefusedError) as caught:
                session.subscribe("a")
            assert (caught.value.resource, caught.value.asked) == ("memory", 104_096)
        with session.subscribe("a"):
            pass
        with pytest.raises(AdvertisementError, match="rate"):
            session.advertise("a", rate_hz=-1)


def test_only_what_has_the_facts_is_about_admission() -> None:
    facts = (("node", "x"), ("resource", "cpu"), ("asked", "12.5"), ("free", "?"))
    refused = refused_subscription(Reason.QUOTA_EXCEEDED, "why", "what", facts)
    assert isinstance(refused, accord.AdmissionRefusedError)
    assert (refused.node, refused.asked, refused.free, refused.of) == ("x", 12.5, 0, "")
    assert str(refused) == "what: quota exceeded: why"
    for reason, others in ((Reason.QUOTA_EXCEEDED, ()), (Reason.NOT_AUTHORIZED, facts)):
        assert type(refused_subscription(reason, "", "", others)) is RefusedError
