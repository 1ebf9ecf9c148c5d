"""Policies over HTTP: read them, change them, explain decisions.

Request bodies are JSON or TOML by content type, which the form of a web page cannot send. The
version is the entity tag, so that `If-Match` keeps two administrators from overwriting each other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from msgspec import Struct

from accord.core.model.errors import AccordError, PolicyError
from accord.core.policy.document_fields import decode
from accord.core.policy.explain import Explanation
from accord.core.policy.policy_parser import policy_from
from accord.core.policy.policy_set import PolicySet, parse_policy_set, render_policy_set, write_json
from accord.http.guard import caller_of
from accord.http.responses import (
    NOT_STORED,
    BodyRefused,
    json_response,
    read_body,
    response_schemas,
)
from accord.http.schemas import JSON, POLICIES, TOML, Changed, History, Problem
from accord.runtime.policy_admin import (
    MAX_TEXT,
    ConflictError,
    DryRun,
    ExplainRequest,
    PolicyAdmin,
    TooManyChangesError,
    UnknownPolicyError,
)
from accord.runtime.policy_requests import decoding_problem
from accord.runtime.policy_store import PolicyStoreError, UnknownVersionError

_TAG: Final = re.compile(r'(?:W/)?"(\d{1,18})"')
_CODES: Final[dict[type[AccordError], int]] = {
    PolicyError: 400,
    UnknownPolicyError: 404,
    UnknownVersionError: 404,
    ConflictError: 412,
    TooManyChangesError: 503,
    PolicyStoreError: 503,
}

_POLICY_SET: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The policy set", "content": {JSON: {}, TOML: {}}}
}
_CHANGED: Final = response_schemas(Changed, _400=Problem, _404=Problem, _412=Problem)
_TRIED: Final = response_schemas(DryRun, _400=Problem)
_EXPLAINED: Final = response_schemas(Explanation, _400=Problem)
_TAKING: Final[dict[str, Any]] = {
    "response_class": Response,
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"type": "object"}}, TOML: {"schema": {"type": "string"}}},
        }
    },
}

Handler = Callable[..., Awaitable[Response]]


class _Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    version: int


def add_policies(app: FastAPI, admin: PolicyAdmin) -> list[type[Struct]]:
    """Add the routes, which the guard protects; returns the structs to describe in OpenAPI."""
    _add_reading(app, admin)
    _add_changes(app, admin)
    return [Problem, Changed, History, DryRun, Explanation]


def _add_reading(app: FastAPI, admin: PolicyAdmin) -> None:
    @app.get(POLICIES, response_class=Response, responses=_POLICY_SET)
    @_map_errors
    async def policies(request: Request) -> Response:
        """All that is decided now: strategy, limits, policies. As TOML if that is accepted."""
        policy_set = admin.policy_set
        if TOML in request.headers.get("accept", ""):
            return _shown(render_policy_set(policy_set), TOML, policy_set)
        return _shown(write_json(policy_set), JSON, policy_set)

    @app.get(f"{POLICIES}/history", response_class=Response, responses=response_schemas(History))
    @_map_errors
    async def history() -> Response:
        """Which versions are kept, and who made them."""
        return json_response(History(tuple(admin.history())))

    @app.get(f"{POLICIES}/explain", response_class=Response, responses=_EXPLAINED)
    @_map_errors
    async def explain_(  # noqa: PLR0913 (a parameter per parameter)
        *,
        operation: str,
        channel: str,
        client: str = "",
        user: str | None = None,
        group: Annotated[list[str] | None, Query()] = None,
        publisher: str = "",
        attribute: Annotated[list[str] | None, Query(description="NAME=VALUE")] = None,
        payload_bytes: Annotated[int | None, Query(ge=0, le=1 << 40)] = None,
    ) -> Response:
        """Which policies decide about an operation, and why; user and groups if not connected."""
        question = ExplainRequest(
            operation=operation,
            channel=channel,
            client=client,
            user=user,
            groups=None if group is None else tuple(group),
            publisher=publisher,
            attributes=None if attribute is None else dict(map(_pair, attribute)),
            payload_bytes=payload_bytes,
        )
        return json_response(admin.explain(question))

    @app.post(f"{POLICIES}/dry-run", responses=_TRIED, **_TAKING)
    @_map_errors
    async def dry_run(request: Request) -> Response:
        """Whom policies would affect, if they were put."""
        return json_response(await admin.dry_run(await _read_policy_set(request)))


def _add_changes(app: FastAPI, admin: PolicyAdmin) -> None:
    @app.put(POLICIES, responses=_CHANGED, **_TAKING)
    @_map_errors
    async def put_policies(request: Request) -> Response:
        """Decide everything anew."""
        policy_set = await _read_policy_set(request)
        return _changed(await admin.replace(policy_set, **_who(request)))

    @app.patch(POLICIES, responses=_CHANGED, **_TAKING)
    @_map_errors
    async def patch_policies(request: Request) -> Response:
        """Set some of strategy, shaping, bandwidth, client_bandwidth, weights, limits."""
        settings = await _read_table(request)
        return _changed(await admin.patch(settings, **_who(request)))

    @app.post(f"{POLICIES}/rollback", responses=_CHANGED, **_TAKING)
    @_map_errors
    async def rollback(request: Request) -> Response:
        """Let an earlier version count again."""
        try:
            wanted = msgspec.convert(await _read_table(request), _Wanted)
        except msgspec.ValidationError as error:
            raise decoding_problem(error) from None
        return _changed(await admin.rollback(wanted.version, **_who(request)))

    @app.put(f"{POLICIES}/{{name:path}}", responses=_CHANGED, **_TAKING)
    @_map_errors
    async def put_policy(request: Request, name: str) -> Response:
        """Add a policy, or replace the one of this name."""
        policy = policy_from(await _read_table(request), name=name)
        return _changed(await admin.put_policy(policy, **_who(request)))

    @app.delete(f"{POLICIES}/{{name:path}}", response_class=Response, responses=_CHANGED)
    @_map_errors
    async def remove_policy(request: Request, name: str) -> Response:
        """Remove a policy."""
        return _changed(await admin.remove_policy(name, **_who(request)))


def _map_errors(handler: Handler) -> Handler:
    """Map errors to responses that state what was expected, and where."""

    @wraps(handler)
    async def answer(*args: Any, **options: Any) -> Response:
        try:
            return await handler(*args, **options)
        except BodyRefused as refusal:
            return _refused(refusal.problem, refusal.code)
        except PolicyError as error:
            return _refused(Problem(error.problem, error.place), 400)
        except AccordError as error:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 500)
            return _refused(Problem(str(error)), code)

    return answer


async def _read_policy_set(request: Request) -> PolicySet:
    """Parse the policy set in a thread: there may be thousands of policies."""
    text, is_json = await _read(request)
    return await asyncio.to_thread(parse_policy_set, text, is_json=is_json)


async def _read_table(request: Request) -> dict[str, Any]:
    text, is_json = await _read(request)
    return await asyncio.to_thread(_parse, text, is_json=is_json)


def _parse(text: str, *, is_json: bool) -> dict[str, Any]:
    table = decode(text, is_json=is_json)
    if not isinstance(table, dict):
        raise PolicyError("request", "expected an object")
    return table


async def _read(request: Request) -> tuple[str, bool]:
    """The body's text, and whether it is JSON."""
    data, kind = await read_body(request, (JSON, TOML), MAX_TEXT)
    try:
        return data.decode(), kind == JSON
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"line {line}", "expected UTF-8 text") from None


def _who(request: Request) -> dict[str, Any]:
    """The author of a change, and the version it is meant for."""
    asker = caller_of(request.scope)
    client = request.client
    wanted = request.headers.get("if-match", "*").strip()
    found = _TAG.fullmatch(wanted)
    if wanted != "*" and found is None:
        raise BodyRefused(412, f'expected a version such as "7" in If-Match, got {wanted[:40]}')
    return {
        "who": asker.name or (f"HTTP from {client.host}" if client else "HTTP"),
        "if_version": int(found[1]) if found else None,
    }


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise PolicyError("attribute", f"expected NAME=VALUE, got {text[:40]!r}")
    return name, value


def _changed(policy_set: PolicySet) -> Response:
    return json_response(Changed(policy_set.version), headers=_tag(policy_set))


def _shown(text: str, media_type: str, policy_set: PolicySet) -> Response:
    return Response(text, headers={**NOT_STORED, **_tag(policy_set)}, media_type=media_type)


def _tag(policy_set: PolicySet) -> dict[str, str]:
    return {"ETag": f'"{policy_set.version}"'}


def _refused(problem: Problem, code: int) -> Response:
    return json_response(problem, code, {"Retry-After": "1"} if code == 503 else None)
