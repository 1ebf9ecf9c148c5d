"""The HTTP interface of a node: operations, probes, metrics, and documents of the interfaces.

Importing this loads Starlette: do so only where HTTP is served.
"""

from __future__ import annotations

from functools import cache, partial
from http import HTTPStatus

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, WebSocketRoute

from accord.core.queries.journal_http import PIPELINE
from accord.core.router.rights import EVERYTHING
from accord.http.console_files import ConsoleFiles
from accord.http.guard import Guard
from accord.http.live import PATH, LiveStream
from accord.http.metrics import exposition, registry_of
from accord.http.pipeline_endpoint import PipelineEndpoint
from accord.http.routes import NOT_STORED, OperationRoutes, problem_response
from accord.http.security_headers import SecurityHeaders, content_policy
from accord.http.sessions import Sessions, session_routes
from accord.operations.documents import REFERENCE_STYLE, asyncapi, html_reference, openapi
from accord.operations.operation import JSON, Problem
from accord.operations.ports import NodePorts
from accord.runtime.pipeline_site import Site
from accord.runtime.users import Users


def create_app(  # noqa: PLR0913 (a parameter per part)
    node: NodePorts,
    *,
    users: Users | None = None,
    is_loopback: bool = True,
    origins: tuple[str, ...] = (),
    sessions: Sessions | None = None,
    files: ConsoleFiles | None = None,
    live: LiveStream | None = None,
    site: Site | None = None,
) -> Starlette:
    """The application of `node`, for `users` if there are any.

    `is_loopback` means that it is served on this machine only, and must be addressed as such. Pages
    of `origins` may use it like its own. Applications of one node share its `sessions` and its live
    stream; `files` are those of the console. The pipeline of a `site` connects here.
    """
    sessions = sessions or Sessions(users or Users(anonymous=EVERYTHING))
    files = files or ConsoleFiles()
    guard = Middleware(
        Guard,
        users=users,
        is_loopback=is_loopback,
        origins=origins,
        find_session=sessions.find,
        is_open=files.has,
        verify=sessions.verify,
    )
    middleware = [guard]
    if origins:
        # Outside of the guard: CORS preflight requests carry no credentials.
        cors = Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "If-Match"],
            expose_headers=["ETag"],
        )
        middleware.insert(0, cors)
    middleware.insert(0, Middleware(SecurityHeaders))
    has_users = users is not None and users.are_configured
    is_open = sessions.is_open if has_users else None
    pages = _Pages(node, has_users=has_users)
    return Starlette(
        routes=[
            OperationRoutes(node),  # in the order in which they are looked at: files are many
            Route("/health", pages.health),
            Route("/ready", pages.ready),
            Route("/metrics", pages.metrics),
            Route("/docs", pages.reference),
            Route("/openapi.json", pages.openapi),
            Route("/asyncapi.json", pages.asyncapi),
            *session_routes(node, sessions),
            WebSocketRoute(PATH, partial((live or LiveStream(node)).serve, is_open=is_open)),
            WebSocketRoute(PIPELINE, PipelineEndpoint(node.view.name, site).serve),
            *files.routes(),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _unrouted},
    )


class _Pages:
    """Probes, metrics and documents. Asynchronous: others would run in a thread of their own."""

    def __init__(self, node: NodePorts, *, has_users: bool) -> None:
        self._view = node.view
        self._has_users = has_users
        self._registry = registry_of(
            node.view,
            None if node.net is None else node.net.status,
            None if node.admission is None else node.admission.status,
            None if node.quality is None else node.quality.totals,
        )

    async def health(self, _: Request) -> Response:
        """Whether the process answers at all."""
        return Response("ok\n", headers=NOT_STORED, media_type="text/plain")

    async def ready(self, _: Request) -> Response:
        """Whether clients are served; 503 while the node starts or drains."""
        is_ready = self._view.is_ready()
        text, status = ("ready\n", 200) if is_ready else ("not ready\n", 503)
        return Response(text, status, headers=NOT_STORED, media_type="text/plain")

    async def metrics(self, request: Request) -> Response:
        """Everything that is counted, for Prometheus."""
        text, media_type = exposition(self._registry, request.headers.get("accept", ""))
        return Response(text, headers={**NOT_STORED, "Content-Type": media_type})

    async def reference(self, _: Request) -> Response:
        headers = {"Content-Security-Policy": content_policy(REFERENCE_STYLE)}
        return HTMLResponse(html_reference(self._view.version), headers=headers)

    async def openapi(self, _: Request) -> Response:
        return _json(_openapi(self._view.version, has_users=self._has_users))

    async def asyncapi(self, _: Request) -> Response:
        return _json(_asyncapi(self._view.version))


@cache
def _openapi(version: str, *, has_users: bool) -> bytes:
    return msgspec.json.encode(openapi(version, has_users=has_users))


@cache
def _asyncapi(version: str) -> bytes:
    return msgspec.json.encode(asyncapi(version))


def _json(body: bytes) -> Response:
    return Response(body, headers=NOT_STORED, media_type=JSON)


async def _unrouted(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    code = error.status_code
    detail = f"no {request.method} {request.url.path[:200]}"
    problem = Problem(
        status=code,
        title=HTTPStatus(code).phrase,
        detail=detail,
        remedy="check the address; /docs lists all operations of a node",
    )
    response = problem_response(problem)
    response.headers.update(error.headers or {})
    return response
