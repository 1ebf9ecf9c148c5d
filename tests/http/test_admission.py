from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
from tests.fake_admission import FakeAdmission, status
from tests.fake_node import FakeNode

from accord.core.admission.status import AdmissionStatus, DemandStatus
from accord.http.app import create_app
from accord.operations.operation import Problem
from accord.operations.ports import NodePorts

ADMISSION = "/api/v1/admission"
NEED = f"{ADMISSION}/need"


def ask(path: str, **parameters: str) -> httpx.Response:
    app = create_app(NodePorts(view=FakeNode(), admission=FakeAdmission()))

    async def main() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, params=parameters)

    return asyncio.run(main())


def test_the_state_is_shown() -> None:
    answer = ask(ADMISSION)
    assert answer.status_code == 200
    assert msgspec.json.decode(answer.content, type=AdmissionStatus) == status()


def test_what_a_subscription_needs_is_told() -> None:
    answer = ask(NEED, channel="stock", where="price > 2")
    need = msgspec.json.decode(answer.content, type=DemandStatus)
    assert (need.where, need.rate_hz.low, need.paper_rate_hz.high) == ("price > 2", 18, None)


def test_mistakes_have_a_place() -> None:
    for parameters, place in (
        ({"channel": ""}, "channel"),
        ({"channel": "a", "where": "price >"}, "where"),
    ):
        answer = ask(NEED, **parameters)
        assert answer.status_code == 400
        assert msgspec.json.decode(answer.content, type=Problem).place == place
    assert ask(NEED).status_code == 400


def test_it_is_described() -> None:
    described: dict[str, Any] = ask("/openapi.json").json()
    assert {ADMISSION, NEED} <= described["paths"].keys()
    assert {"AdmissionStatus", "DemandStatus", "PoolStatus"} <= described["components"][
        "schemas"
    ].keys()


def test_metrics_have_no_names_of_clients() -> None:
    text = ask("/metrics").text
    assert 'accord_admission_info{mode="enforce"} 1.0' in text
    assert 'accord_admission_refused_total{resource="bandwidth"} 1.0' in text
    assert 'accord_admission_decisions_total{state="admitted"} 2.0' in text
    assert 'accord_admission_promised{of="clients",resource="bandwidth"} 20000.0' in text
    assert 'accord_admission_capacity{of="link boston",resource="bandwidth"} 100000.0' in text
    assert 'accord_admission_capacity{of="",resource="cpu"}' not in text
    assert "accord_admission_limited_events_total 7.0" in text
    assert "ann" not in text.replace("channel", "")
