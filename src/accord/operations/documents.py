"""Documents derived from the operations: OpenAPI for HTTP, AsyncAPI for MQTT, and the reference.

`python -m accord.operations.documents` writes `docs/API.md`.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final

import msgspec

from accord.operations.catalog import OPERATIONS, topics
from accord.operations.live_catalog import SETS
from accord.operations.operation import (
    API,
    CONDITIONS,
    JSON,
    NODE,
    PROBLEM,
    TEXT,
    TOML,
    Operation,
    Problem,
    has_origin,
)
from accord.operations.query import PageEnd
from accord.operations.session import ROUTES, SessionRoute

_REFERENCE: Final = "#/components/schemas/{name}"
_PLAIN: Final = {
    "/health": "Whether the process answers at all.",
    "/ready": "Whether clients are served; 503 while the node starts or drains.",
    "/metrics": "Everything that is counted, for Prometheus.",
}
REFERENCE_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;"
    "margin:2rem auto;padding:0 1rem}td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
    "h2{margin-top:2.5rem;border-bottom:1px solid}h3{margin-bottom:.2rem}p{margin:.3rem 0}"
)
_RESPONSE: Final = {
    "responseTopic": {"type": "string", "description": "Where the reply goes."},
    "correlationData": {"type": "string", "description": "Comes back with the reply."},
    "bindingVersion": "0.2.0",
}
_RESULT: Final = {
    "name": "query.result",
    "summary": "An event that was found, with the payload and user properties it was published "
    "with, and accord-channel, accord-event, accord-received-ms and accord-publisher.",
}
_NODE: Final = {
    "name": NODE,
    "in": "query",
    "required": False,
    "description": "Another node of the network that answers, through this one.",
    "schema": {"type": "string", "maxLength": 256},
}
_TAGS: Final = {"if_version": r'^(\*|(W/)?"[0-9]{1,18}")$', "replaces": r"^\*$"}
_ANY_NODE: Final = " Of any node."
Json = dict[str, Any]


class _Schemas:
    """Schemas of all types that operations use, with shared components."""

    def __init__(self, *others: Any) -> None:
        types: list[Any] = [Problem, *others]
        types += [type_ for route in ROUTES for type_ in (route.body, route.answer) if type_]
        for each in OPERATIONS:
            types += [each.answer, each.request, *filter(None, [each.streams])]
            types += [*(field.type for field in each.fields.values())]
        found, self.components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
        self._by_id = {id(type_): schema for type_, schema in zip(types, found, strict=True)}
        self._types = types  # so that identities stay

    def of(self, type_: Any) -> Json:
        return self._by_id[id(type_)]


def openapi(version: str, *, has_users: bool = False) -> Json:
    """OpenAPI 3.1, also with the schemas of the live sets, by the names of their structs.

    Of a node that `has_users`, requests need a name and a password.
    """
    schemas = _Schemas(*(type_ for each in SETS.values() for type_ in (each.watch, each.state)))
    paths: dict[str, Json] = {
        path: {
            "get": {"summary": text, "tags": ["probes"], "responses": _plain(path, text, schemas)}
        }
        for path, text in _PLAIN.items()
    }
    for each in OPERATIONS:
        if each.path:
            paths.setdefault(API + each.path, {})[each.method.lower()] = _http(each, schemas)
    for route in ROUTES:
        paths.setdefault(API + route.path, {})[route.method.lower()] = _session(route, schemas)
    paths["/health"]["get"]["security"] = []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Accord",
            "version": version,
            "description": "Operations of a node. Errors are problem details (RFC 9457).",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "user": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": "accord_session"},
            },
        },
        "security": [{"user": []}, {"session": []}] if has_users else [],
    }


def asyncapi(version: str) -> Json:
    """AsyncAPI 3.0: a channel for each topic of requests, and the client's own response topic."""
    schemas = _Schemas()
    channels: dict[str, Json] = {
        "responses": {
            "address": "accord-response/{client}/{id}",
            "description": "Any topic that the requester is subscribed to: it is given as the "
            "response topic of the request; the reply carries the same correlation data.",
            "parameters": {
                "client": {"description": "The ID of the client."},
                "id": {"description": "Chosen by the client."},
            },
            "messages": {},
        }
    }
    operations: dict[str, Json] = {}
    messages: dict[str, Json] = {"query.result": _RESULT}
    for topic, group in topics().items():
        name = topic.rpartition("/")[2]
        channels[name] = {"address": topic, "messages": {}}
        for each in group.operations:
            asked, answered = f"{each.name}.request", f"{each.name}.reply"
            messages[asked] = _message(each, "request", schemas.of(each.request))
            messages[asked]["bindings"] = {"mqtt": _RESPONSE}
            messages[answered] = _message(each, "reply", _reply(schemas, each))
            channels[name]["messages"][asked] = _to(f"components/messages/{asked}")
            replies = ["query.result", answered] if each.streams is PageEnd else [answered]
            for reply in replies:
                channels["responses"]["messages"][reply] = _to(f"components/messages/{reply}")
            operations[each.name] = {
                "action": "receive",
                "summary": each.description,
                "description": f"Takes: {each.right.value}.",
                "channel": _to(f"channels/{name}"),
                "messages": [_to(f"channels/{name}/messages/{asked}")],
                "reply": {
                    "channel": _to("channels/responses"),
                    "messages": [_to(f"channels/responses/messages/{one}") for one in replies],
                },
            }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Accord",
            "version": version,
            "description": "Requests to a node over MQTT 5: JSON with `do`, a response topic that "
            "the requester is subscribed to, and correlation data.",
        },
        "defaultContentType": JSON,
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas.components},
    }


def markdown_reference() -> str:
    """`docs/API.md`."""
    lines = [
        "# Operations",
        "",
        "Everything that can be asked of a node: over HTTP, over MQTT and from Python. With a",
        "default node:",
        "",
        "```console",
        "$ curl -s http://127.0.0.1:8080/api/v1/channels",
        '{"channels":[]}',
        "```",
        "",
        "A node serves this page at `/docs`, OpenAPI at `/openapi.json`, AsyncAPI at",
        "`/asyncapi.json`. This page is generated: `python -m accord.operations.documents`.",
        "",
        "- **HTTP**: paths are below `/api/v1`. Fields are in the path, in the query, or in the",
        "  body (JSON). A list is given by repeating its parameter. With users configured, Basic",
        "  authentication or a session. `If-Match` carries `if_version`.",
        "- **MQTT**: publish the fields and `do` as JSON to the topic, with a response topic that",
        "  you are subscribed to, and correlation data. The reply has `ok`.",
        "- **Python**: `await session.call(REQUEST)` with the request's struct from",
        "  `accord.operations`, such as `accord.operations.policies.PutPolicy`.",
        "- **Any node**: what is marked so can be asked of another node of the network through",
        "  this one: `node=NAME` in the query, or the field `node` over MQTT and in Python",
        "  ([network](NETWORK.md#ask-another-node)).",
        "- **Errors** are problem details (RFC 9457) everywhere: `status`, `title`, `detail`,",
        "  `place` (the part of the request), `remedy`; over MQTT with `ok` false.",
        "",
    ]
    for topic, group in topics().items():
        lines += [f"## {topic}", ""]
        for each in sorted(group.operations, key=lambda op: op.name):
            lines += [f"### {each.name}", "", each.description, ""]
            where = f"`{each.method} {each.path}`" if each.path else f"none: {each.mqtt_only}"
            takes = f"Takes: {each.right.value}.{_ANY_NODE if each.asks_others else ''}"
            lines.append(f"HTTP: {where}. MQTT: `do` = `{each.action}`. {takes}")
            lines.append("")
            if each.fields:
                lines += ["| field | type | default | |", "|---|---|---|---|"]
                lines += [_row(each, name) for name in each.fields]
                lines.append("")
            answer = re.sub(r"\s+", " ", (each.answer.__doc__ or "").partition("\n\n")[0])
            lines += [f"Answer: `{each.answer.__name__}`. {answer}", ""]
    lines += [
        "## Sessions",
        "",
        "For pages in a browser, over HTTP only ([security](SECURITY.md#sessions)).",
        "",
    ]
    for route in ROUTES:
        fields = [each.name for each in msgspec.structs.fields(route.body)] if route.body else []
        body = f" Body: {', '.join(f'`{name}`' for name in fields)}." if fields else ""
        lines += [f"### session.{route.name}", "", route.description, ""]
        lines += [f"HTTP: `{route.method} {route.path}`.{body} Takes: {route.takes}.", ""]
        lines += [f"Answer: `{route.answer.__name__}`. {_first(route.answer)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def html_reference(version: str) -> str:
    """A self-contained page of all operations."""
    parts = []
    for topic, group in topics().items():
        parts.append(f"<h2>{escape(topic)}</h2>")
        for each in sorted(group.operations, key=lambda op: op.name):
            where = f"{each.method} {API}{each.path}" if each.path else each.mqtt_only
            fields = "".join(
                f"<tr><td><code>{escape(name)}</code></td><td>{escape(_type(each, name))}</td>"
                f"<td>{escape(_default(each, name))}</td><td>{escape(_about(each, name))}</td></tr>"
                for name in each.fields
            )
            parts.append(
                f'<section id="{each.name}"><h3>{each.name}</h3><p>{escape(each.description)}</p>'
                f"<p><code>{escape(where)}</code> · <code>{topic}</code> "
                f"<code>do: {escape(each.action)}</code> · {escape(each.right.value)}</p>"
                + (f"<table>{fields}</table>" if fields else "")
                + f"<p>Answer: <code>{each.answer.__name__}</code></p></section>"
            )
    parts.append("<h2>Sessions</h2>")
    parts += [
        f'<section id="session.{each.name}"><h3>session.{each.name}</h3>'
        f"<p>{escape(each.description)}</p>"
        f"<p><code>{each.method} {API}{each.path}</code> · {escape(each.takes)}</p>"
        f"<p>Answer: <code>{each.answer.__name__}</code></p></section>"
        for each in ROUTES
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="/favicon.svg" type="image/svg+xml">'
        f"<title>Operations · Accord</title><style>{REFERENCE_STYLE}</style></head><body>"
        f'<h1>Operations</h1><p>Accord {escape(version)} · <a href="openapi.json">OpenAPI</a> · '
        '<a href="asyncapi.json">AsyncAPI</a></p>' + "".join(parts) + "</body></html>"
    )


def _http(each: Operation, schemas: _Schemas) -> Json:
    shown: Json = {
        "operationId": each.name,
        "summary": each.description,
        "description": f"Takes: {each.right.value}.",
        "tags": [each.group],
        "responses": {
            "200": {"description": _first(each.answer), "content": _answer_content(each, schemas)},
            "default": _problem(schemas),
        },
    }
    if parameters := _parameters(each, schemas):
        shown["parameters"] = parameters
    if each.has_body:
        shown["requestBody"] = {"required": _needs_body(each), "content": _body(each, schemas)}
    if each.group == "policies" and "version" in each.answer.__struct_fields__:
        tag = {"description": "The version.", "schema": {"type": "string"}}
        shown["responses"]["200"]["headers"] = {"ETag": tag}
    return shown


def _session(route: SessionRoute, schemas: _Schemas) -> Json:
    shown: Json = {
        "operationId": f"session.{route.name}",
        "summary": route.description,
        "description": f"Takes: {route.takes}.",
        "tags": ["session"],
        **({"security": []} if route.is_open else {}),
        "responses": {
            "200": {
                "description": _first(route.answer),
                "content": {JSON: {"schema": schemas.of(route.answer)}},
            },
            "default": {
                "description": _first(Problem),
                "content": {PROBLEM: {"schema": schemas.of(Problem)}},
            },
        },
    }
    if route.body is not None:
        content = {JSON: {"schema": schemas.of(route.body)}}
        shown["requestBody"] = {"required": True, "content": content}
    return shown


def _parameters(each: Operation, schemas: _Schemas) -> list[Json]:
    """The fields in the path, in the query and in headers; former names as deprecated."""
    shown: list[Json] = []
    own_fields = [name for name in each.query_fields if name != NODE]
    for name in (*each.path_fields, *own_fields):
        schema = _in_text(each, name, schemas)
        where = "path" if name in each.path_fields else "query"
        is_required = where == "path" or each.fields[name].required
        shown.append({"name": name, "in": where, "required": is_required, "schema": schema})
        shown += [
            {"name": alias, "in": where, "deprecated": True, "schema": schema}
            for alias, field in each.aliases.items()
            if field == name
        ]
    if each.asks_others:
        shown.append(_NODE)
    shown += [
        {"name": header, "in": "header", "schema": {"type": "string", "pattern": _TAGS[name]}}
        for name, header in CONDITIONS.items()
        if name in each.fields
    ]
    return shown


def _in_text(each: Operation, name: str, schemas: _Schemas) -> Json:
    """The schema of a parameter: without null, a mapping as NAME=VALUE."""
    schema = schemas.of(each.fields[name].type)
    described = {key: value for key, value in schema.items() if key != "anyOf"}
    if has_origin(each.fields[name].type, (dict,)):
        return {**described, "type": "array", "items": {"type": "string", "pattern": "^[^=]+="}}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return {**kinds[0], **described}
    return {**described, "anyOf": kinds} if kinds else schema


def _needs_body(each: Operation) -> bool:
    return bool(each.entity) or any(each.fields[name].required for name in each.body_fields)


def _body(each: Operation, schemas: _Schemas) -> Json:
    if each.entity:
        schema = schemas.of(each.fields[each.entity].type)
    else:
        names = each.body_fields
        schema = {
            "type": "object",
            "properties": {name: schemas.of(each.fields[name].type) for name in names},
            "required": [name for name in names if each.fields[name].required],
            "additionalProperties": False,
        }
    texts = {TOML: {"type": "string"}, TEXT: {"type": "string"}}
    return {media: {"schema": texts.get(media, schema)} for media in each.body_media}


def _answer_content(each: Operation, schemas: _Schemas) -> Json:
    answer = schemas.of(each.answer)
    shown = {field.name: field for field in msgspec.structs.fields(each.answer)}
    if each.entity in shown:
        answer = {"type": "object"}
    others = {media: {"schema": {"type": "string"}} for media in each.media}
    return {JSON: {"schema": answer}, **others} if each.json else others


def _message(each: Operation, kind: str, payload: Json) -> Json:
    return {
        "name": f"{each.name}.{kind}",
        "summary": each.description if kind == "request" else _first(each.streams or each.answer),
        "contentType": JSON,
        "payload": payload,
    }


def _reply(schemas: _Schemas, each: Operation) -> Json:
    """The answer with `ok` true, or a problem with `ok` false."""
    done, failed = (
        {"type": "object", "properties": {"ok": {"const": is_done}}, "required": ["ok"]}
        for is_done in (True, False)
    )
    answer = schemas.of(each.streams or each.answer)
    return {
        "oneOf": [{"allOf": [done, answer]}, {"allOf": [failed, schemas.of(Problem)]}],
    }


def _to(path: str) -> Json:
    return {"$ref": f"#/{path}"}


def _plain(path: str, text: str, schemas: _Schemas) -> Json:
    shown = {"200": {"description": text, "content": {TEXT: {}}}, "default": _problem(schemas)}
    if path == "/ready":
        shown["503"] = {"description": "Clients are not served now.", "content": {TEXT: {}}}
    return shown


def _problem(schemas: _Schemas) -> Json:
    content = {PROBLEM: {"schema": schemas.of(Problem)}}
    return {"description": _first(Problem), "content": content}


def _first(type_: type) -> str:
    return " ".join((type_.__doc__ or "").partition("\n\n")[0].split())


def _row(each: Operation, name: str) -> str:
    cells = (f"`{name}`", _type(each, name), _default(each, name), _about(each, name))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(each: Operation, name: str) -> str:
    return _words(each.fields[name].type)


def _words(type_: Any) -> str:
    info = msgspec.inspect.type_info(type_)
    return _kind(info)


def _kind(info: Any) -> str:
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _kind(inner)
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(_kind(one) for one in types)
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            kind = "integer" if isinstance(info, msgspec.inspect.IntType) else "number"
            low, high = info.ge, info.le
            return (
                f"{kind} {low or 0:,} to {high:,}".replace(".0", "") if high is not None else kind
            )
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.NoneType():
            return "null"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case msgspec.inspect.DictType() | msgspec.inspect.StructType():
            return "object"
        case (
            msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item)
        ):
            return f"list of {_kind(item)}"
        case _:
            return "any"


def _default(each: Operation, name: str) -> str:
    field = each.fields[name]
    if field.required:
        return "required"
    default = field.default
    if default is None or default is msgspec.NODEFAULT or default in ("", {}, []):
        return ""
    return f"`{default}`".replace("True", "true").replace("False", "false")


def _about(each: Operation, name: str) -> str:
    return _description(msgspec.inspect.type_info(each.fields[name].type))


def _description(info: Any) -> str:
    if isinstance(info, msgspec.inspect.Metadata):
        found = (info.extra_json_schema or {}).get("description")
        return found or _description(info.type)
    if isinstance(info, msgspec.inspect.UnionType):
        return next(filter(None, map(_description, info.types)), "")
    return ""


def main() -> None:
    from pathlib import Path  # noqa: PLC0415

    Path("docs/API.md").write_text(markdown_reference())


if __name__ == "__main__":
    main()
