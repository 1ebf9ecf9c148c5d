"""The HTTP API of a node. Importing this loads FastAPI: do so only where HTTP is served.

The self-contained page at `/`: what this is, and where to look.
"""

from __future__ import annotations

from html import escape
from itertools import islice
from pathlib import Path
from string import Template
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, Response

from accord.core.monitoring.measurement_registry import MeasurementRegistry
from accord.core.router.limits import BUILD
from accord.http.admission import AdmissionView, add_admission
from accord.http.guard import Guard
from accord.http.journal import add_journal
from accord.http.ledger import LedgerView, add_ledger
from accord.http.metrics import exposition, registry_of
from accord.http.net import NetView, add_net
from accord.http.policies import add_policies
from accord.http.quality import QualityView, add_quality
from accord.http.queries import PipelineView, QueryImportance, add_queries, add_registry
from accord.http.responses import NOT_STORED, describe, json_response, response_schemas
from accord.http.schemas import ClientPage, NodeSummary, NodeView
from accord.runtime.policy_admin import PolicyAdmin
from accord.runtime.users import Users

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$name · Accord</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 38rem; margin: 12vh auto; padding: 1rem; }
  h1 { font-size: 1.6rem; margin: 0; }
  dt { margin-top: 1rem; font-weight: 600; }
  dd { margin: 0; }
  .quiet { opacity: .7; }
</style>
</head>
<body>
<h1>$name</h1>
<p class="quiet">Accord $version · $state</p>
<p>A node that carries messages between MQTT clients: publish, subscribe with conditions on
content, and have what matters arrive in time.</p>
<dl>
  <dt><a href="api/v1/status">Status</a></dt><dd>What the node does now, as JSON.</dd>
  <dt><a href="api/v1/clients">Clients</a></dt><dd>Connected clients and offline sessions.</dd>
  <dt><a href="metrics">Metrics</a></dt><dd>The same for Prometheus.</dd>
  <dt><a href="docs">API</a></dt><dd>Every operation, to read and try
    (<a href="openapi.json">OpenAPI</a>; the page takes its looks from the internet).</dd>
</dl>
</body>
</html>
""")


def landing_page(*, name: str, version: str, is_ready: bool) -> str:
    return _PAGE.substitute(
        name=escape(name),
        version=escape(version),
        state="serving clients" if is_ready else "not serving clients now",
    )


Limit = Annotated[int, Query(ge=1, le=1_000, description="How many sessions at most")]
Offset = Annotated[int, Query(ge=0, le=100_000_000, description="How many sessions to pass over")]


class KeptView(msgspec.Struct, frozen=True, kw_only=True):
    """Access to kept events: the query pipeline, the journal's directory, measured values."""

    pipeline: PipelineView
    registry: MeasurementRegistry
    journal: Path | None = None


def create_app(  # noqa: PLR0913 (the parts of a node)
    view: NodeView,
    *,
    ledger: LedgerView | None = None,
    admin: PolicyAdmin | None = None,
    kept: KeptView | None = None,
    net: NetView | None = None,
    admission: AdmissionView | None = None,
    quality: QualityView | None = None,
    users: Users | None = None,
    is_loopback: bool = True,
    origins: tuple[str, ...] = (),
) -> FastAPI:
    """The application that shows `view`, to `users` if there are any.

    Further arguments add routes: `ledger` the outcomes of events, `admin` reading and
    changing policies, `kept` queries of kept events, `net` other nodes and channel definitions,
    `admission` what is reserved and refused, `quality` what is expected and offered. `is_loopback`
    means that it is served on this machine only, and must be addressed as such. Pages of `origins`
    may use it like its own.
    """
    app = FastAPI(
        title="Accord",
        version=view.version,
        description="Status and metrics of a node.",
        redoc_url=None,
    )
    _add_probes(app, view, net, admission, quality)
    _add_status(app, view)
    structs: list[type[msgspec.Struct]] = [NodeSummary, ClientPage]
    if net is not None:
        structs += add_net(app, net)
    if admission is not None:
        structs += add_admission(app, admission)
    if quality is not None:
        structs += add_quality(app, quality)
    if ledger is not None:
        structs += add_ledger(app, ledger)
    if admin is not None:
        structs += add_policies(app, admin)
    if kept is not None:
        importances = QueryImportance(admin, users, view.name)
        structs += add_queries(app, kept.pipeline, importances)
        structs += add_registry(app, kept.registry)
        if kept.journal is not None:
            structs += add_journal(app, kept.journal, view.name)
    describe(app, structs)
    app.add_middleware(Guard, users=users, is_loopback=is_loopback, origins=origins)
    if origins:
        # Outside of the guard: CORS preflight requests carry no credentials.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


# Each operation is asynchronous, because others would run in a thread beside the node's own.


def _add_probes(
    app: FastAPI,
    view: NodeView,
    net: NetView | None,
    admission: AdmissionView | None,
    quality: QualityView | None,
) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        text = landing_page(name=view.name, version=view.version, is_ready=view.is_ready())
        return HTMLResponse(text, headers=HEADERS)

    @app.get("/health", response_class=Response, responses=_plain("It does"))
    async def health() -> Response:
        """Whether the process answers at all."""
        return Response("ok\n", headers=NOT_STORED, media_type="text/plain")

    @app.get("/ready", response_class=Response, responses=_plain("They are"))
    async def ready() -> Response:
        """Whether clients are served; 503 while the node starts or drains."""
        is_ready = view.is_ready()
        text, status = ("ready\n", 200) if is_ready else ("not ready\n", 503)
        return Response(text, status, headers=NOT_STORED, media_type="text/plain")

    registry = registry_of(
        view,
        None if net is None else net.status,
        None if admission is None else admission.status,
        None if quality is None else quality.totals,
    )

    @app.get("/metrics", response_class=Response, responses=_plain("Metrics"))
    async def metrics(request: Request) -> Response:
        """Everything that is counted, for Prometheus."""
        text, media_type = exposition(registry, request.headers.get("accept", ""))
        return Response(text, headers={**NOT_STORED, "Content-Type": media_type})


def _add_status(app: FastAPI, view: NodeView) -> None:
    @app.get("/api/v1/status", response_class=Response, responses=response_schemas(NodeSummary))
    async def status() -> Response:
        """What the node does and holds now."""
        return json_response(
            NodeSummary(
                name=view.name,
                version=view.version,
                build=BUILD,
                is_ready=view.is_ready(),
                statistics=view.statistics(),
            )
        )

    @app.get("/api/v1/clients", response_class=Response, responses=response_schemas(ClientPage))
    async def clients(limit: Limit = 100, offset: Offset = 0) -> Response:
        """Sessions of clients that are connected or away, page by page."""
        page = tuple(islice(view.clients(), offset, offset + limit))
        return json_response(
            ClientPage(total=view.statistics().sessions, offset=offset, clients=page)
        )


def _plain(words: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"description": words, "content": {"text/plain": {}}}}
