"""A request as a client sends it over HTTP: the inverse of `accord.http.routes`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from accord.operations.operation import API, JSON, NODE, TOML, Request, operation_of


class HttpForm(Struct, frozen=True, kw_only=True):
    """Method, path with query, headers and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None = None


def http_form(request: Request[Any]) -> HttpForm:
    """Raises ValueError if the operation is not offered over HTTP, or lacks a part of its path."""
    operation = operation_of(type(request))
    if not operation.path:
        raise ValueError(f"{operation.name} is not offered over HTTP: {operation.mqtt_only}")
    fields = msgspec.to_builtins(request)  # without defaults
    del fields["do"]
    path = operation.path
    for name in operation.path_fields:
        value = getattr(request, name)
        if value is None:
            raise ValueError(f"{operation.name} over HTTP: expected {name}")
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        fields.pop(name, None)
    headers: dict[str, str] = {}
    if (version := fields.pop("if_version", None)) is not None:
        headers["If-Match"] = f'"{version}"'
    fields.pop("replaces", None)
    if getattr(request, "replaces", True) is False:
        headers["If-None-Match"] = "*"
    body: bytes | None = None
    query_node = fields.pop(NODE, None)
    if operation.has_body:
        headers["Content-Type"] = operation.body_media[0]
        toml = fields.pop("toml", None)
        if toml is not None:
            headers["Content-Type"] = TOML
            body = toml.encode()
            fields.pop(operation.entity, None)
        elif operation.entity:
            value = getattr(request, operation.entity)
            fields.pop(operation.entity, None)
            is_json = operation.body_media[0] == JSON
            body = msgspec.json.encode(value) if is_json else value.encode()
        else:
            body, fields = msgspec.json.encode(fields), {}
    fields[NODE] = query_node
    query = urlencode([pair for item in fields.items() for pair in _pairs(*item)])
    return HttpForm(
        method=operation.method,
        path=API + path + (f"?{query}" if query else ""),
        headers=headers,
        body=body,
    )


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    """Parameters of the query."""
    match value:
        case None:
            return []
        case dict():
            return [(name, f"{key}={_text(item)}") for key, item in value.items()]
        case list() | tuple():
            return [(name, _text(item)) for item in value]
        case _:
            return [(name, _text(value))]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
