"""What a node does for another one: with the rights of the asker, and nothing in its name."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.fake_admission import FakeAdmission
from tests.fake_net import FakeNet
from tests.fake_node import FakeNode

from accord.core.admission.status import AdmissionStatus
from accord.core.broker.broker import Broker
from accord.core.channels.node_requests.messages import (
    NodeQuestion,
    RequestOutcome,
    RequestResult,
    unpack,
)
from accord.core.channels.node_requests.node_requests import NodeOrder
from accord.core.router.limits import Limits
from accord.core.router.rights import EVERYTHING, NO_RIGHTS, Rights
from accord.operations.catalog import topics
from accord.operations.operation import FAILED, Asker, Problem, Request, RequestError
from accord.operations.ports import NodePorts
from accord.runtime import node_requests as module
from accord.runtime.node_requests import NodeRequestService

ADMISSION = "$accord/admission"


def order(topic: str, request: object, rights: object = EVERYTHING) -> NodeOrder:
    body = request if isinstance(request, bytes) else msgspec.json.encode(request)
    packed = rights if isinstance(rights, bytes) else msgspec.msgpack.encode(rights)
    return NodeOrder("alpha", NodeQuestion(1, topic, body, packed))


def perform(topic: str, request: object, rights: object = EVERYTHING) -> bytes:
    broker = Broker(Limits(), now_ms=0, new_client_id=lambda: "x")
    admission: Any = FakeAdmission()
    admission.admitting_now = object()
    node = NodePorts(view=FakeNode(), broker=broker, net=FakeNet(), admission=admission)
    return asyncio.run(module._answer(order(topic, request, rights), node))


def test_the_rights_of_the_asker_count() -> None:
    full = msgspec.json.decode(perform(ADMISSION, {"do": "get"}), type=AdmissionStatus)
    assert len(full.filters) == 5
    less = perform(ADMISSION, {"do": "get"}, Rights(subscribe=("news",)))
    assert msgspec.json.decode(less, type=AdmissionStatus).filters == ()
    with pytest.raises(RequestError, match="may not use") as refused:
        perform(ADMISSION, {"do": "get"}, NO_RIGHTS)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("topic", "request_", "rights", "status"),
    [
        ("$accord/no such", {"do": "get"}, EVERYTHING, 501),
        (ADMISSION, {"do": "no such"}, EVERYTHING, 400),
        (ADMISSION, b"\xff", EVERYTHING, 400),
        (ADMISSION, {"do": "get"}, b"\xc1", 400),
        (ADMISSION, {"do": "get"}, ["#"], 400),
        ("$accord/clients", {"do": "disconnect", "client": "ann"}, EVERYTHING, 400),
        ("$accord/report", {"do": "get"}, EVERYTHING, 400),
        # It acts for the asking client, which is not here.
        ("$accord/advertisements", {"do": "list"}, EVERYTHING, 400),
        ("$accord/clients", {"do": "get", "client": "ann"}, EVERYTHING, 404),
    ],
)
def test_what_makes_no_sense_is_refused(
    topic: str, request_: object, rights: object, status: int
) -> None:
    with pytest.raises(RequestError) as refused:
        perform(topic, request_, rights)
    assert refused.value.status == status


def test_a_request_is_not_passed_on() -> None:
    found = perform(ADMISSION, {"do": "get", "node": "gamma"})
    assert msgspec.json.decode(found, type=AdmissionStatus).node == "denver"


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (msgspec.json.encode(FAILED), 500, "node beta failed to answer"),
        (msgspec.json.encode(Problem(status=404, detail="no client", place="client")), 404, "no"),
        (msgspec.json.encode(Problem(status=200, detail="odd")), 502, "odd"),
        (b"{", 502, "can't be read"),
        (b"\xff", 502, "can't be read"),
    ],
)
def test_a_refusal_of_another_node_is_a_refusal_here(body: bytes, status: int, detail: str) -> None:
    error = module._refusal(body, "beta")
    assert error.status == status
    assert detail in error.problem


@pytest.mark.parametrize("result", sorted(module._WORDS, key=str))
def test_each_end_has_a_status_and_words(result: RequestResult) -> None:
    error = module._error_of(result, "beta")
    assert error.status >= 400
    assert "beta" in error.problem
    assert (error.place, bool(error.remedy)) == ("node", True)


class FakeOverlay:
    """The overlay as the service uses it, with what was sent to the other node."""

    def __init__(self) -> None:
        self.after: list[Any] = []
        self.replies: list[tuple[bytes, bool]] = []
        self.channels = self
        self.overlay = self
        self.store = None

    def serve(self, _name: str, _make: object) -> Any:
        return self

    def turn(self) -> None: ...

    def reply(self, _order: NodeOrder, packed: bytes, _now_us: int, *, is_done: bool) -> None:
        self.replies.append((packed, is_done))


@pytest.mark.parametrize(
    ("raised", "status"),
    [(None, 413), (RuntimeError("broken"), 500), (RequestError(409, "x"), 409)],
)
def test_each_request_of_another_node_gets_a_reply(
    monkeypatch: pytest.MonkeyPatch, raised: Exception | None, status: int
) -> None:
    async def answer(_order: NodeOrder, _node: NodePorts) -> bytes:
        if raised is not None:
            raise raised
        return bytes(3 << 20)

    monkeypatch.setattr(module, "_answer", answer)
    net: Any = FakeOverlay()
    service = NodeRequestService(net)
    asyncio.run(service._perform(order(ADMISSION, {"do": "get"}), NodePorts(view=FakeNode())))
    ((packed, is_done),) = net.replies
    assert not is_done
    problem = msgspec.json.decode(unpack(packed) or b"", type=Problem)
    assert problem.status == status


def test_an_answer_that_is_no_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    net: Any = FakeOverlay()
    service = NodeRequestService(net)
    outcome = RequestOutcome(1, "beta", RequestResult.ANSWERED, b'{"node":7}')

    async def exchange(*_: object) -> Any:
        return outcome

    monkeypatch.setattr(service, "_exchange", exchange)
    request: Request[Any] = topics()[ADMISSION].decode(b'{"do":"get"}')[1]
    with pytest.raises(RequestError, match="can't be read") as refused:
        asyncio.run(service.ask("beta", request, Asker(rights=EVERYTHING)))
    assert refused.value.status == 502
