"""Every operation is offered by every interface, and the documents describe all of them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

from accord.core.overlay.status import NetStatus
from accord.core.quality.json_forms import parse_expectation, read_capabilities
from accord.core.quality.properties import PropertyRegistry
from accord.core.router.rights import EVERYTHING, NO_RIGHTS, Rights
from accord.http.app import create_app
from accord.operations.catalog import OPERATIONS, topics
from accord.operations.channels import CreateChannel, GetNet
from accord.operations.clients import EndSession, ListClients
from accord.operations.documents import asyncapi, html_reference, markdown_reference, openapi
from accord.operations.http_form import HttpForm, http_form
from accord.operations.operation import (
    API,
    Asker,
    Operation,
    Problem,
    Request,
    RequestError,
    Right,
    operation_of,
)
from accord.operations.other_nodes import ask_node, ask_nodes
from accord.operations.policies import Explain, GetPolicies, PutPolicies, PutPolicy, RemovePolicy
from accord.operations.ports import Audit, NodePorts
from accord.operations.predicates import CheckPredicate
from accord.operations.query import Find, GetReport, Next
from accord.operations.session import ROUTES
from tests.fake_net import FakeNet
from tests.fake_node import FakeNode

NAMES = [each.name for each in OPERATIONS]
ROOT = Path(__file__).parents[2]
ASYNCAPI = ROOT / "build/node/node_modules/@asyncapi/specs/schemas/3.0.0.json"


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
class TestEach:
    def test_it_is_offered_over_mqtt_and_http(self, operation: Operation) -> None:
        assert operation in topics()[operation.topic].operations
        assert bool(operation.path) != bool(operation.mqtt_only)

    def test_it_is_described(self, operation: Operation) -> None:
        assert operation.description.endswith((".", "accepted."))
        assert operation.answer.__doc__
        for name in operation.path_fields:
            assert name in operation.fields

    def test_changes_are_not_made_by_reading(self, operation: Operation) -> None:
        if operation.path:
            is_tried = operation.name in ("policies.dry_run", "predicates.check", "quality.convert")
            assert (operation.method == "GET") != (operation.changes or is_tried)

    def test_without_the_right_it_is_refused(self, operation: Operation) -> None:
        if operation.right is Right.ANY:
            return
        asker = Asker(user="eve", rights=NO_RIGHTS)
        with pytest.raises(RequestError, match="eve may not use") as refused:
            operation.perform(NodePorts(view=FakeNode()), GetNet(), asker)
        assert refused.value.status == 403
        assert operation.right.value in refused.value.remedy


def test_names_are_unique() -> None:
    assert len({*NAMES}) == len(NAMES)
    routes = [(each.method, each.path) for each in OPERATIONS if each.path]
    assert len({*routes}) == len(routes)


@pytest.mark.parametrize(
    ("request_", "form"),
    [
        (GetNet(), HttpForm(method="GET", path=f"{API}/net", headers={})),
        (
            ListClients(limit=7, offset=3),
            HttpForm(method="GET", path=f"{API}/clients?limit=7&offset=3", headers={}),
        ),
        (
            Explain(operation="publish", channel="a/b", groups=("x", "y"), attributes={"n": True}),
            HttpForm(
                method="GET",
                path=f"{API}/policies/explain?operation=publish&channel=a%2Fb&groups=x&groups=y"
                "&attributes=n%3Dtrue",
                headers={},
            ),
        ),
        (
            RemovePolicy(name="a b/c", if_version=7),
            HttpForm(
                method="DELETE", path=f"{API}/policies/a%20b%2Fc", headers={"If-Match": '"7"'}
            ),
        ),
        (
            PutPolicy(name="a", policy={"importance": 1}),
            HttpForm(
                method="PUT",
                path=f"{API}/policies/a",
                headers={"Content-Type": "application/json"},
                body=b'{"importance":1}',
            ),
        ),
        (
            PutPolicies(toml="strategy = 'strict'"),
            HttpForm(
                method="PUT",
                path=f"{API}/policies",
                headers={"Content-Type": "application/toml"},
                body=b"strategy = 'strict'",
            ),
        ),
        (
            CreateChannel(name="chat", paths=2),
            HttpForm(
                method="PUT",
                path=f"{API}/channels/chat",
                headers={"Content-Type": "application/json", "If-None-Match": "*"},
                body=b'{"paths":2}',
            ),
        ),
        (
            GetReport(since="-2h"),
            HttpForm(method="GET", path=f"{API}/report?since=-2h", headers={}),
        ),
        (
            EndSession(client="p/1"),
            HttpForm(method="DELETE", path=f"{API}/clients/p%2F1", headers={}),
        ),
    ],
)
def test_requests_over_http(request_: Any, form: HttpForm) -> None:
    assert http_form(request_) == form


def test_what_is_not_offered_over_http() -> None:
    with pytest.raises(ValueError, match=r"query\.find takes the cursor"):
        http_form(Next(cursor="x"))
    with pytest.raises(ValueError, match=r"put_policy over HTTP: expected name"):
        http_form(PutPolicy(policy={"name": "a"}))


def test_openapi() -> None:
    document = openapi("1")
    text = msgspec.json.encode(document).decode()
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert referred <= set(document["components"]["schemas"])
    offered = {
        (method.upper(), path.removeprefix(API))
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith(API)
    }
    sessions = {(each.method, each.path) for each in ROUTES}
    assert offered == sessions | {(each.method, each.path) for each in OPERATIONS if each.path}
    query = document["paths"][f"{API}/query"]["get"]
    assert {each["name"] for each in query["parameters"]} == set(operation_of(Find).fields)
    explain = document["paths"][f"{API}/policies/explain"]["get"]["parameters"]
    shown = {each["name"]: each for each in explain}
    assert shown["attributes"]["schema"]["items"] == {"type": "string", "pattern": "^[^=]+="}
    assert shown["attribute"]["deprecated"]
    headers = [
        each["name"]
        for each in document["paths"][f"{API}/policies"]["put"]["parameters"]
        if each["in"] == "header"
    ]
    assert headers == ["If-Match"]
    assert document["security"] == []
    assert openapi("1", has_users=True)["security"] == [{"user": []}, {"session": []}]


def test_asyncapi() -> None:
    document = asyncapi("1")
    assert set(document["operations"]) == set(NAMES)
    text = msgspec.json.encode(document).decode()
    for kind, name in re.findall(r'"#/components/(\w+)/([\w.]+)"', text):
        assert name in document["components"][kind]


@pytest.mark.skipif(not ASYNCAPI.is_file(), reason="needs the npm package @asyncapi/specs")
def test_asyncapi_is_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema_rs")
    validator = jsonschema.validator_for(msgspec.json.decode(ASYNCAPI.read_bytes()))
    document = asyncapi("1")
    assert not [each.message for each in validator.iter_errors(document)]
    document["operations"]["status.get"]["action"] = "ask"
    assert not validator.is_valid(document)


def test_the_examples_of_quality_are_valid() -> None:
    schemas = openapi("1")["components"]["schemas"]
    expected = schemas["UpdateExpectation"]["properties"]["expect"]["examples"]
    assert [parse_expectation(each, PropertyRegistry()).id for each in expected] == ["quick"]
    (offered,) = schemas["RegisterProfile"]["properties"]["capabilities"]["examples"]
    assert [each.property for each in read_capabilities(offered)] == ["rate"]


def test_the_reference_in_docs_is_that_of_the_code() -> None:
    written = (ROOT / "docs" / "API.md").read_text()
    assert written == markdown_reference(), "run `python -m accord.operations.documents`"
    page = html_reference("1")
    assert all(f'id="{name}"' in page for name in NAMES)


class TestErrors:
    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        app = create_app(NodePorts(view=FakeNode(), net=FakeNet()))

        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                return await http.request(method, path, **options)

        return asyncio.run(main())

    @pytest.mark.parametrize(
        ("method", "path", "code", "place"),
        [
            ("GET", f"{API}/nothing", 404, None),
            ("DELETE", f"{API}/net", 405, None),
            ("GET", f"{API}/net?color=red", 400, "color"),
            ("GET", f"{API}/clients?limit=1&limit=2", 400, "limit"),
            ("GET", f"{API}/clients?limit=many", 400, "limit"),
            ("GET", f"{API}/policies/explain?attribute=x", 400, "attribute"),
            ("GET", f"{API}/policies", 404, None),  # this node has none
            ("PUT", f"{API}/channels/a?paths=2", 400, "paths"),
            ("GET", f"{API}/ledger?since_ms=null", 400, "since_ms"),
            ("DELETE", f"{API}/policies/a?if_version=7", 400, "if_version"),
            ("PUT", f"{API}/capabilities/a/usage", 405, None),
            ("PUT", f"{API}/capabilities/a%2Fusage", 400, "request"),  # of the channel a/usage
        ],
    )
    def test_all_are_problems(self, method: str, path: str, code: int, place: str | None) -> None:
        answer = self.ask(method, path)
        assert answer.status_code == code
        assert answer.headers["content-type"] == "application/problem+json"
        found = answer.json()
        assert (found["status"], found.get("place")) == (code, place)
        assert found["detail"]

    @pytest.mark.parametrize(
        ("body", "place"),
        [({"name": "b"}, "name"), ({"replaces": False}, "replaces"), ({"do": "list"}, "do")],
    )
    def test_what_belongs_elsewhere_is_refused_in_the_body(
        self, body: dict[str, Any], place: str
    ) -> None:
        answer = self.ask("PUT", f"{API}/channels/a", json=body)
        assert (answer.status_code, answer.json()["place"]) == (400, place)

    @pytest.mark.parametrize("value", ["", "7", '"7"'])
    def test_a_channel_is_kept_from_replacement_by_an_asterisk_only(self, value: str) -> None:
        headers = {"If-None-Match": value}
        assert self.ask("PUT", f"{API}/channels/a", headers=headers, json={}).status_code == 400

    @pytest.mark.parametrize(
        ("path", "methods"),
        [
            ("/net", {"GET"}),
            ("/channels/a", {"DELETE", "GET", "PUT"}),
            ("/capabilities/a/usage", {"GET"}),
            ("/policies", {"GET", "PATCH", "PUT"}),
        ],
    )
    def test_the_methods_of_a_path_are_named(self, path: str, methods: set[str]) -> None:
        answer = self.ask("OPTIONS", API + path)
        assert answer.status_code == 405
        assert {*answer.headers["allow"].split(", ")} - {"HEAD"} == methods

    def test_documents_are_served(self) -> None:
        assert self.ask("GET", "/openapi.json").content == msgspec.json.encode(openapi("1.2"))
        assert self.ask("GET", "/asyncapi.json").json()["info"]["version"] == "1.2"
        page = self.ask("GET", "/docs")
        assert "policies.put_policy" in page.text
        assert "src=" not in page.text
        assert "://" not in page.text


class TestRights:
    def test_lists_show_what_the_asker_may_subscribe_to(self) -> None:
        net = FakeNet()
        node = NodePorts(view=FakeNode(), net=net)
        create = operation_of(CreateChannel)
        for name in ("a/x", "b/x"):
            create.perform(node, CreateChannel(name=name), Asker(rights=EVERYTHING))
        listing = next(each for each in OPERATIONS if each.name == "channels.list")
        asker = Asker(user="bob", rights=Rights(subscribe=("a/#",)))
        found = listing.perform(node, listing.request(), asker)
        assert [each.name for each in found.channels] == ["a/x"]

    def test_changes_are_audited(self) -> None:
        seen: list[tuple[str, str, str]] = []

        def audit(name: str, asker: Asker, request: str, *, subject: str, channel: str) -> None:
            seen.append((name, f"{asker.who} {subject} {channel}", request))

        node = NodePorts(view=FakeNode(), net=FakeNet(), audit=cast("Audit", audit))
        asker = Asker(user="ann", address="10.0.0.9", rights=EVERYTHING)
        operation_of(CreateChannel).perform(node, CreateChannel(name="chat"), asker)
        assert isinstance(operation_of(GetNet).perform(node, GetNet(), asker), NetStatus)
        ((name, who, text),) = seen
        assert (name, who) == ("channels.create", "ann chat ")
        assert '"name":"chat"' in text

    def test_a_refused_change_is_not_audited(self) -> None:
        node = NodePorts(
            view=FakeNode(), net=FakeNet(), audit=lambda *_, **__: pytest.fail("audited")
        )
        with pytest.raises(RequestError):
            operation_of(CreateChannel).perform(
                node, CreateChannel(name="chat"), Asker(user="bob", rights=Rights())
            )


def test_a_part_that_the_node_lacks() -> None:
    operation = operation_of(GetPolicies)
    with pytest.raises(RequestError, match="this node has no policies"):
        operation.perform(NodePorts(view=FakeNode()), GetPolicies(), Asker(rights=EVERYTHING))


class OtherNodes:
    """Answers as another node, whose operations see the same fake parts."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Request[Any], Rights]] = []

    def nodes(self) -> list[str]:
        return ["beta"]

    known_nodes = nodes

    async def ask(self, name: str, request: Request[Any], asker: Asker) -> Any:
        self.asked.append((name, request, asker.rights))
        if name != "beta":
            raise RequestError(404, f"no node {name}", "node")
        return "answered"


def test_what_reads_is_asked_of_another_node_with_the_rights_of_the_asker() -> None:
    others = OtherNodes()
    node = NodePorts(view=FakeNode(), net=FakeNet(), others=others)
    asker = Asker(rights=Rights(subscribe=("a/#",)))

    async def main() -> None:
        ask: Any = GetNet()
        assert await ask_node(node, "beta", ask, asker) == "answered"
        assert isinstance(await ask_node(node, "alpha", ask, asker), NetStatus)
        found: dict[str, Any] = {}
        found |= await ask_nodes(node, ["alpha", "beta", "gamma"], GetNet(), asker)
        assert isinstance(found["alpha"], NetStatus)
        assert found["beta"] == "answered"
        assert found["gamma"] == Problem(
            status=404, title="Not Found", detail="no node gamma", place="node"
        )
        with pytest.raises(RequestError, match="may not use"):
            await ask_node(node, "beta", GetNet(), Asker(rights=NO_RIGHTS))

    asyncio.run(main())
    assert [name for name, _, _ in others.asked] == ["beta", "beta", "gamma"]
    assert all(rights == asker.rights for _, _, rights in others.asked)


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_what_changes_or_streams_is_not_asked_of_others(operation: Operation) -> None:
    values: dict[str, Any] = {"do": operation.action, "node": "beta"}
    for name, field in operation.fields.items():
        if field.required:
            (schema,), _ = msgspec.json.schema_components([field.type])
            kind = schema.get("type") or schema.get("anyOf", [{}])[0].get("type")
            values[name] = {"number": 1, "integer": 1, "object": {}, "array": []}.get(kind, "x")
    try:
        request = msgspec.convert(values, operation.request)
    except msgspec.ValidationError:
        return  # its required fields are more than their types
    node = NodePorts(view=FakeNode(), others=OtherNodes())
    if operation.asks_others:
        answer = operation.perform(node, request, Asker(rights=EVERYTHING))
        assert asyncio.run(answer) == "answered"
    else:
        with pytest.raises(RequestError, match="through another node"):
            operation.perform(node, request, Asker(rights=EVERYTHING))


def test_a_node_without_others_says_so() -> None:
    node = NodePorts(view=FakeNode(), net=FakeNet())
    with pytest.raises(RequestError, match="can't ask other nodes"):
        operation_of(GetNet).perform(node, GetNet(node="beta"), Asker(rights=EVERYTHING))


def test_the_node_is_in_the_query_over_http() -> None:
    assert http_form(GetNet(node="b c")).path == f"{API}/net?node=b+c"
    form = http_form(CheckPredicate(where="a > 1", node="beta"))
    assert form.path == f"{API}/predicates/check?node=beta"
    assert form.body == b'{"where":"a > 1"}'
    document = openapi("1")
    for each in OPERATIONS:
        if each.path:
            shown = document["paths"][API + each.path][each.method.lower()]
            names = [one["name"] for one in shown.get("parameters", ())]
            assert ("node" in names) == each.asks_others
