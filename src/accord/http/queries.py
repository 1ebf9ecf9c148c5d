"""Kept events and quality reports over HTTP, served by the data pipeline.

A user who may subscribe to channels may query their kept events. The server is stateless between
two pages: the cursor is self-contained, and rights are checked again for each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from msgspec.structs import replace

from accord.core.model.channels import problem_with_filter
from accord.core.model.units import DEFAULT_IMPORTANCE, NOW, parse_time
from accord.core.monitoring.measurement_registry import MeasurementRegistry
from accord.core.policy.policies import Entity
from accord.core.queries.messages import MAX_TOKEN, EventQuery, Page, encode_token
from accord.core.queries.report import Report
from accord.core.router.rights import Rights
from accord.http.event_schemas import (
    QUERY,
    REGISTRY,
    REPORT,
    MeasuredValueList,
    QueryPage,
    shown_events,
)
from accord.http.guard import Caller, caller_of
from accord.http.responses import NOT_STORED, json_response, response_schemas
from accord.http.schemas import JSON, Problem
from accord.runtime.pipeline import Kind, PipelineError
from accord.runtime.policy_admin import PolicyAdmin
from accord.runtime.query_service import (
    QueryRequest,
    is_single_event,
    parse_query,
    query_problem,
    read_cursor,
)
from accord.runtime.users import Users

PAGE_BYTES: Final = 4 << 20
_CODES: Final[dict[Kind, int]] = {
    "off": 503,
    "unavailable": 503,
    "busy": 503,
    "timeout": 504,
    "question": 400,
    "failed": 500,
    "ended": 500,
}
_GONE: Final = 499  # the client has disconnected; this is never received
_LATER_S: Final = 60

Rows = Annotated[int, Query(ge=1, le=1_000, description="Events of a page at most")]
Limit = Annotated[int, Query(ge=1, le=1 << 40, description="Events of all pages at most")]
Text = Annotated[str, Query(max_length=65_535)]
Moment = Annotated[str, Query(max_length=100, description="Such as -24h, now, 2026-11-16T07:30Z")]
Token = Annotated[str, Query(max_length=MAX_TOKEN, description="Of the page before")]
Order = Literal["newest", "oldest"]

_Found = TypeVar("_Found")


class PipelineView(Protocol):
    """The query operations of a node's data pipeline."""

    async def page(
        self, ask: EventQuery, *, cursor: str, rows: int, bytes_: int, importance: int
    ) -> Page: ...

    async def report(
        self, *, since_ms: int, until_ms: int, channel: str, importance: int
    ) -> bytes: ...


class QueryImportance:
    """The importance that policies grant to queries over HTTP."""

    def __init__(self, admin: PolicyAdmin | None, users: Users | None, node: str) -> None:
        self._admin = admin
        self._users = users
        self._node = node

    def of(self, caller: Caller, channel: str) -> int:
        if self._admin is None:
            return DEFAULT_IMPORTANCE
        groups = () if self._users is None else self._users.groups_of(caller.name)
        entity = Entity("", caller.name, groups, self._node)
        return self._admin.query_grant(channel, entity).importance


class _ForbiddenError(Exception):
    """The caller's rights do not suffice."""


def add_queries(
    app: FastAPI, pipeline: PipelineView, importances: QueryImportance
) -> list[type[msgspec.Struct]]:
    """Add the routes, which the guard protects; returns the structs to describe in OpenAPI."""
    _add_query(app, pipeline, importances)
    _add_report(app, pipeline, importances)
    return [QueryPage, Report, Problem]


def add_registry(app: FastAPI, registry: MeasurementRegistry) -> list[type[msgspec.Struct]]:
    @app.get(
        REGISTRY,
        response_class=Response,
        responses=response_schemas(MeasuredValueList, _400=Problem),
    )
    async def registered(kind: Text, subject: Text | None = None) -> Response:
        """Measured values: of a kind (channel, predicate, publisher, node, link), or fewer."""
        if subject is not None and (problem := problem_with_filter(subject)):
            return json_response(Problem(problem, "subject"), 400)
        return json_response(
            MeasuredValueList(values=tuple(registry.select(kind, subject, now_ms=_now_ms())))
        )

    return [MeasuredValueList]


def _add_query(app: FastAPI, pipeline: PipelineView, importances: QueryImportance) -> None:
    @app.get(
        QUERY,
        response_class=Response,
        responses=response_schemas(
            QueryPage, _400=Problem, _403=Problem, _503=Problem, _504=Problem
        ),
    )
    async def query(  # noqa: PLR0913 (a parameter per parameter)
        *,
        request: Request,
        channel: Text | None = None,
        where: Text | None = None,
        xpath: Text | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: Limit | None = None,
        order: Order = "newest",
        event: Text | None = None,
        cursor: Token = "",
        page: Rows = 100,
    ) -> Response:
        """Kept events of a channel filter, by content and time; or the one of this id."""

        async def answer() -> Response:
            asker = caller_of(request.scope)
            # In threads: a predicate may be long, and a page a thousand events with XML.
            if cursor:
                ask, behind = await asyncio.to_thread(read_cursor, cursor)
            else:
                question = QueryRequest(
                    channel=channel,
                    where=where,
                    xpath=xpath,
                    since=since,
                    until=until,
                    limit=limit,
                    order=order,
                    event=event,
                )
                behind = ""
                ask = await asyncio.to_thread(parse_query, question, now_ms=_now_ms())
            rights = asker.rights.for_client(user=asker.name, client="")
            # Overrides whatever the cursor contains.
            ask = replace(ask, without=rights.denied.subscribe)
            if not is_single_event(ask) and not rights.may_subscribe(ask.channel):
                who = asker.name or "an anonymous client"
                raise _ForbiddenError(f"{who} may not subscribe to {ask.channel[:200]!r}")
            found = await pipeline.page(
                ask,
                cursor=behind,
                rows=page,
                bytes_=PAGE_BYTES,
                importance=importances.of(asker, ask.channel),
            )
            return await asyncio.to_thread(_page_response, ask, found, rights)

        return await _respond(request, answer())


def _add_report(app: FastAPI, pipeline: PipelineView, importances: QueryImportance) -> None:
    @app.get(
        REPORT,
        response_class=Response,
        responses=response_schemas(Report, _400=Problem, _403=Problem, _503=Problem, _504=Problem),
    )
    async def report(
        *,
        request: Request,
        last: Annotated[str, Query(max_length=100, description="Such as 1h")] = "1h",
        since: Moment | None = None,
        until: Moment | None = None,
        channel: Text = "#",
    ) -> Response:
        """Delivered quality per channel, client and node; of the `last` hour, or since … until."""

        async def answer() -> Response:
            asker = caller_of(request.scope)
            if problem := problem_with_filter(channel):
                raise query_problem("channel", problem)
            until_ms = _moment(until or NOW, "until")
            since_ms = _ago(last, until_ms) if since is None else _moment(since, "since")
            if since_ms >= until_ms:
                raise query_problem("since", "expected a time before the end of the report")
            body = await pipeline.report(
                since_ms=since_ms,
                until_ms=until_ms,
                channel=channel,
                importance=importances.of(asker, channel),
            )
            return Response(body, headers=NOT_STORED, media_type=JSON)

        return await _respond(request, answer())


async def _respond(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """Map errors to responses, and cancel the work if the client disconnects."""
    try:
        answer = await _unless_disconnected(request, work)
    except _ForbiddenError as error:
        return json_response(Problem(str(error), "channel"), 403)
    except PipelineError as error:
        code = _CODES[error.kind]
        later = {"Retry-After": str(error.retry_s or _LATER_S)} if code == 503 else None
        return json_response(Problem(error.problem, error.place), code, later)
    return answer or Response(status_code=_GONE)


async def _unless_disconnected(
    request: Request, work: Coroutine[Any, Any, _Found]
) -> _Found | None:
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_until_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _page_response(ask: EventQuery, page: Page, rights: Rights) -> Response:
    events = page.events
    if ask.number is not None:
        events = tuple(each for each in events if rights.may_subscribe(each.channel))
    return json_response(
        QueryPage(
            events=shown_events(events),
            cursor=encode_token(ask, page.cursor) or None,
            files=page.files,
            files_skipped=page.files_skipped,
            bytes=page.bytes,
            tail=page.tail,
            took_ms=page.took_ms,
        )
    )


def _moment(text: str, place: str) -> int:
    try:
        return parse_time(text, now_ms=_now_ms())
    except ValueError as error:
        raise query_problem(place, str(error)) from None


def _ago(text: str, now_ms: int) -> int:
    try:
        return parse_time(f"-{text.strip().removeprefix('-')}", now_ms=now_ms)
    except ValueError:
        problem = f"expected a time such as 1h, 30min or 7d, got {text[:60]!r}"
        raise query_problem("last", problem) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
