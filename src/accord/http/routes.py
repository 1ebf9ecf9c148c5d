"""Operations over HTTP: requests from path, query and body; answers as JSON; problems by RFC 9457.

Parameters in the path and in the query are fields of the request; so is the body, or the one field
that is the operation's `entity`. A list is given by repeating its parameter, a mapping by repeated
`NAME=VALUE`. Versions are entity tags: `If-Match` is `if_version`. Requests are limited in type,
size and time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from accord.core.model.errors import AccordError
from accord.core.policy.document_fields import decode
from accord.http.guard import asker_of
from accord.operations.catalog import OPERATIONS
from accord.operations.operation import (
    API,
    CONDITIONS,
    FAILED,
    JSON,
    NODE,
    PROBLEM,
    TEXT,
    Asker,
    Operation,
    Problem,
    Request,
    RequestError,
    decoding_problem,
    has_origin,
    problem_of,
    takes_text,
)
from accord.operations.ports import NodePorts
from accord.runtime.logs import get_log

log = get_log(__name__)

NOT_STORED: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
BODY_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 60
_PREFIX: Final = f"{API}/"
_ROUTE: Final = "accord.route"
_GONE: Final = 499  # the client has disconnected; this is never received
_TAG: Final = re.compile(r'(?:W/)?"(\d{1,18})"')


class OperationRoutes(BaseRoute):
    """The routes of all operations: fixed paths by name, before those with parameters."""

    def __init__(self, node: NodePorts) -> None:
        offered: dict[str, list[Operation]] = {}
        for each in OPERATIONS:
            if each.path:
                offered.setdefault(each.path, []).append(each)
        in_order = sorted(offered, key=lambda path: (path.count("{"), -path.count("/"), path))
        routes = [_PathRoute(node, path, offered[path]) for path in in_order]
        self._fixed = {each.path: each for each in routes if "{" not in each.path}
        self._others = [each for each in routes if "{" in each.path]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = _sent_path(scope)
        if scope["type"] != "http" or not path.startswith(_PREFIX):
            return Match.NONE, {}
        scope = {**scope, "path": path}
        fixed = self._fixed.get(path)
        partial: tuple[Match, Scope] = Match.NONE, {}
        for route in self._others if fixed is None else chain((fixed,), self._others):
            match, found = route.matches(scope)
            found[_ROUTE] = route
            if match is Match.FULL:
                return match, found
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, found
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_ROUTE].handle(scope, receive, send)


def _sent_path(scope: Scope) -> str:
    """The path as it was sent, so that an encoded slash belongs to a parameter."""
    raw_path = scope.get("raw_path")
    return str(scope["path"]) if raw_path is None else raw_path.decode("latin-1")


class _PathRoute(Route):
    """All operations of a path.

    Parameters may contain slashes: `…/a%2Fusage` is about `a/usage`, `…/a/usage` the usage of `a`.
    """

    def __init__(self, node: NodePorts, path: str, operations: list[Operation]) -> None:
        self._endpoints = {each.method: _Endpoint(node, each) for each in operations}
        super().__init__(
            API + re.sub(r"\{(\w+)\}", r"{\1:path}", path),
            self._answer,
            methods=list(self._endpoints),
        )
        self._is_alone = not path.endswith("}") and "{" in path

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        if match is Match.NONE:
            return match, found
        values: dict[str, str] = found["path_params"]
        found["path_params"] = {name: unquote(value) for name, value in values.items()}
        # Where it is more than a parameter, the path is of no other operation.
        return (Match.FULL if self._is_alone else match), found

    async def _answer(self, request: HttpRequest) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await self._endpoints[method].answer(request)


class _Endpoint:
    def __init__(self, node: NodePorts, operation: Operation) -> None:
        self._node = node
        self._operation = operation
        fields = {name: each.type for name, each in operation.fields.items()}
        self._lists = {name for name, each in fields.items() if has_origin(each, (list, tuple))}
        self._maps = {name for name, each in fields.items() if has_origin(each, (dict,))}
        self._needs_value = {name for name, each in fields.items() if not takes_text(each)}

    async def answer(self, request: HttpRequest) -> Response:
        operation = self._operation
        try:
            asker = asker_of(request.scope)
            operation.check_right(asker)  # before the effort of reading
            ask = await self._read(request)
            found = operation.perform(self._node, ask, asker)
            if isinstance(found, Awaitable):
                if operation.long:
                    found = await _unless_disconnected(request, found)
                    if found is None:
                        return Response(status_code=_GONE)
                else:
                    found = await found
            if operation.parts is not None:
                return _PartsResponse(self._node, operation, ask, asker, found)
            return self._shown(request, found)
        except AccordError as error:
            retry_s = getattr(error, "retry_s", 0) or (RETRY_S if operation.long else 1)
            return problem_response(problem_of(error), retry_s)
        except Exception as error:
            log.failure("request: failed", error, operation=operation.name)
            return problem_response(FAILED)

    async def _read(self, request: HttpRequest) -> Request[Any]:
        operation = self._operation
        values: dict[str, Any] = dict(request.path_params)
        is_query = not operation.has_body or bool(operation.entity)
        values |= self._query(request)
        if operation.has_body:
            values |= await self._body(request)
        values |= _conditions(request, operation)
        values["do"] = operation.action
        try:
            found: Request[Any] = msgspec.convert(values, operation.request, strict=not is_query)
        except (msgspec.ValidationError, RecursionError) as error:
            raise decoding_problem(error) from None
        return found

    def _query(self, request: HttpRequest) -> dict[str, Any]:
        operation = self._operation
        values: dict[str, Any] = {}
        known = operation.query_fields
        for parameter, value in request.query_params.multi_items():
            name = operation.aliases.get(parameter, parameter)
            if name in operation.body_fields:
                raise RequestError(400, "expected in the body, not in the query", parameter[:80])
            if name not in known and name != NODE:  # the operation says if it has none
                problem = f"unknown parameter, expected {', '.join(known) or 'none'}"
                raise RequestError(400, problem, parameter[:80])
            if name in self._maps:
                values.setdefault(name, {}).update([_pair(parameter, value)])
            elif name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise RequestError(400, "expected once", parameter[:80])
            elif value.lower() == "null" and name in self._needs_value:
                raise RequestError(400, "expected a value, or no parameter", parameter[:80])
            else:
                values[name] = value
        return values

    async def _body(self, request: HttpRequest) -> dict[str, Any]:
        operation = self._operation
        data, kind = await read_body(request, operation.body_media, operation.max_bytes)
        entity = operation.entity
        if not kind:
            return {}
        text = _text(data)
        if kind != JSON:
            if kind == TEXT:
                return {entity: text}
            if "toml" in operation.fields:
                return {"toml": text}
            found = await asyncio.to_thread(decode, text, is_json=False)
        else:
            try:
                found = await asyncio.to_thread(msgspec.json.decode, text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise decoding_problem(error) from None
        if entity:
            return {entity: found}
        if not isinstance(found, dict):
            raise RequestError(400, "expected an object", "request")
        for name in found:
            if name == NODE:
                raise RequestError(400, "expected in the query, not in the body", NODE)
            if name == "do" or (name in operation.fields and name not in operation.body_fields):
                where = CONDITIONS.get(name, "the path")
                raise RequestError(400, f"expected in {where}, not in the body", name)
        return found

    def _shown(self, request: HttpRequest, answer: Any) -> Response:
        operation = self._operation
        headers = dict(NOT_STORED)
        version = getattr(answer, "version", None)
        if isinstance(version, int) and operation.group == "policies":
            headers["ETag"] = f'"{version}"'
        accept = request.headers.get("accept", "")
        for media, render in operation.media.items():
            if media in accept or not operation.json:
                return Response(render(answer), headers=headers, media_type=media)
        shown = getattr(answer, operation.entity, answer) if operation.entity else answer
        return Response(msgspec.json.encode(shown), headers=headers, media_type=JSON)


class _PartsResponse(Response):
    """A body of several answers, each asked for when the client has taken those before.

    It breaks off if one fails, so that the client does not take it for all.
    """

    def __init__(
        self, node: NodePorts, operation: Operation, ask: Request[Any], asker: Asker, first: Any
    ) -> None:
        assert operation.parts is not None
        self._node = node
        self._operation = operation
        self._ask = ask
        self._asker = asker
        self._first = first
        self._parts = operation.parts(ask)
        super().__init__(headers=dict(NOT_STORED), media_type=self._parts.media_type)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _unless_disconnected(HttpRequest(scope, receive), self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            ask, part = self._ask, self._first
            while True:
                ask = self._parts.next(ask, part)
                body = await self._parts.put(part, is_last=ask is None)
                await send(
                    {"type": "http.response.body", "body": body, "more_body": ask is not None}
                )
                if ask is None:
                    return
                part = await self._operation.perform(self._node, ask, self._asker)
        except AccordError as error:
            log.warning("response: broken off", operation=self._operation.name, problem=str(error))


def problem_response(problem: Problem, retry_s: int = 1) -> Response:
    headers = dict(NOT_STORED)
    if problem.status in (429, 503):
        headers["Retry-After"] = str(retry_s)
    return Response(
        msgspec.json.encode(problem), problem.status, headers=headers, media_type=PROBLEM
    )


def _conditions(request: HttpRequest, operation: Operation) -> dict[str, Any]:
    """Preconditions in headers that are fields of the request."""
    found: dict[str, Any] = {}
    given = request.headers.get("if-match")
    if "if_version" in operation.fields and given is not None:
        tag = _TAG.fullmatch(given.strip())
        if tag is not None:
            found["if_version"] = int(tag[1])
        elif given.strip() != "*":
            problem = f'expected a version such as "7" in If-Match, got {given[:40]}'
            raise RequestError(412, problem)
    if "replaces" in operation.fields:
        unless = request.headers.get("if-none-match")
        if unless is not None and unless.strip() != "*":
            raise RequestError(400, f"expected * in If-None-Match, got {unless[:40]}")
        found["replaces"] = unless is None
    return found


async def read_body(
    request: HttpRequest, media: tuple[str, ...], max_bytes: int
) -> tuple[bytes, str]:
    """The body and its media type, empty if there is no body; RequestError if it can't be taken."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = request.headers.get("content-length", "0") != "0" or bool(
        request.headers.get("transfer-encoding")
    )
    if not has_body and not kind:
        return b"", ""
    if kind not in media:
        expected = " or ".join(media)
        raise RequestError(415, f"expected {expected} as content type, got {kind[:80] or 'none'}")
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                data += part
                if len(data) > max_bytes:
                    raise RequestError(413, f"expected at most {max_bytes} bytes")
    except ClientDisconnect:
        raise RequestError(400, "expected all of it before the connection ends") from None
    except TimeoutError:
        raise RequestError(408, f"expected all of it within {BODY_TIMEOUT_S:.0f} s") from None
    return bytes(data), kind


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(400, "expected UTF-8 text", f"line {line}") from None


def _pair(parameter: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise RequestError(400, f"expected NAME=VALUE, got {text[:40]!r}", parameter)
    return name, value


async def _unless_disconnected(request: HttpRequest, work: Awaitable[Any]) -> Any:
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_until_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _until_disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
