"""What can be asked of a node: each operation is declared once, all interfaces are derived from it.

A request is a struct whose class names its answer and its action: `PutPolicy(Request[Changed],
tag="put policy")`. The decorator `operation` binds it to a handler, to a group (the topic
`$accord/GROUP` over MQTT), to a method and path of HTTP, and to the right it takes. A handler gets
values and returns one; it raises an `AccordError` for what it refuses. Handlers that are plain
functions are performed in the order in which requests arrive; coroutines may overlap.

Each request has a `node`: what only reads can be asked of another node through any node. Handlers
do not see it: the request is performed at that node, with the asker's rights.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from http import HTTPStatus
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct

from accord.core.model.errors import AccordError
from accord.core.router.rights import NODE_TOPICS, Rights

API: Final = "/api/v1"
JSON: Final = "application/json"
TOML: Final = "application/toml"
TEXT: Final = "text/plain"
PROBLEM: Final = "application/problem+json"
MAX_BYTES: Final = 65_536
CONDITIONS: Final = {"if_version": "If-Match", "replaces": "If-None-Match"}
"""Fields that are headers over HTTP."""
NODE: Final = "node"
"""The field that names the node to be asked; in the query over HTTP."""

Answer = TypeVar("Answer")
_LOCATION: Final = re.compile(r" - at `\$?\.?(.*)`$")
_MAX_QUOTED: Final = 200
_MAX_BRIEF: Final = 400
_SUBJECTS: Final = ("name", "policy", "client", "id", "channel", "version")


class Request(
    Struct,
    Generic[Answer],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="do",
):
    """Base of all requests; the tag is the action within the group."""

    node: Annotated[
        str,
        Meta(
            max_length=256,
            description="The node that is asked, through this one; this one if empty. "
            "Only of operations that read.",
        ),
    ] = ""


class Acknowledged(Struct, frozen=True):
    """The request was performed; there is nothing to add."""


class Right(Enum):
    """What the asker must be allowed to do; `ANY`: the handler checks the channels concerned."""

    ANY = "any client"
    STATISTICS = "may.statistics"
    POLICIES = "may.policies"
    EVERYTHING = "may.subscribe to # and may.system"


class Asker(Struct, frozen=True, kw_only=True):
    """Who asks: an authenticated user, a client of MQTT, or an anonymous caller of HTTP."""

    user: str = ""
    client: str = ""
    address: str = ""
    agent: str = ""  # the program that asks, by its own word: a hint in texts, no more
    rights: Rights

    @property
    def who(self) -> str:
        agent = self.agent or "HTTP"
        return self.user or self.client or f"{agent} from {self.address or 'this machine'}"

    def has(self, right: Right) -> bool:
        rights = self.rights
        match right:
            case Right.ANY:
                return True
            case Right.STATISTICS:
                return rights.statistics
            case Right.POLICIES:
                return rights.policies
            case Right.EVERYTHING:
                return rights.may_subscribe("#") and rights.system and not rights.denied.subscribe

    def may_see(self, channel: str) -> bool:
        """Whether lists show what concerns `channel`."""
        return self.rights.policies or self.rights.may_subscribe(channel)


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was refused (RFC 9457): `detail` in words, `place` within the request.

    Of an invalid predicate also `at`, the position in its text counted from 0, what was `expected`
    there, and a `repair` where one is known.
    """

    status: int
    title: str = ""
    detail: str = ""
    place: str = ""
    remedy: str = ""
    at: int | None = None
    expected: str = ""
    repair: str = ""
    type: str = "about:blank"

    @property
    def sentence(self) -> str:
        what = f"{self.place}: {self.detail}" if self.place else self.detail
        return f"{what}; {self.remedy}" if self.remedy else what


class RequestError(AccordError):
    """A request that is refused with this status."""

    def __init__(
        self,
        status: int,
        problem: str,
        place: str = "",
        *,
        remedy: str = "",
        retry_s: int = 0,
    ) -> None:
        self.status = status
        self.problem = problem
        self.place = place
        self.remedy = remedy
        self.retry_s = retry_s
        self.at: int | None = None
        self.expected = ""
        self.repair = ""
        super().__init__(f"{place}: {problem}" if place else problem)


def problem_of(error: AccordError) -> Problem:
    status = error.status
    return Problem(
        status=status,
        title=HTTPStatus(status).phrase,
        detail=getattr(error, "problem", "") if error.place else str(error),
        place=error.place,
        remedy=getattr(error, "remedy", ""),
        at=getattr(error, "at", None),
        expected=getattr(error, "expected", ""),
        repair=getattr(error, "repair", ""),
    )


FAILED: Final = Problem(
    status=500,
    title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
    detail="the node failed to answer",
    remedy="see its log",
)

Handler = Callable[..., Any]


class Parts(Protocol):
    """Makes one body of several answers."""

    media_type: str

    def next(self, ask: Any, part: Any) -> Any:
        """The request after this one, which had this answer; None after the last."""

    async def put(self, part: Any, *, is_last: bool) -> bytes: ...


class Operation:
    """One operation, and where it is offered.

    `entity` names the field that is the whole body over HTTP (of the request if it has such a
    field, else of the answer); `media` are further media types of it, the only ones unless
    `json`. `aliases` are names of query parameters by former clients. An operation that `streams`
    sends its results over MQTT as messages of their own, and last a reply of that type; a `long`
    one ends when the caller over HTTP disconnects. Of one with `parts`, the answer over HTTP is one
    body, made of the answers to that request and to those that follow it.
    """

    def __init__(  # noqa: PLR0913 (what is declared of an operation)
        self,
        handler: Handler,
        group: str,
        http: str,
        right: Right,
        *,
        changes: bool,
        entity: str,
        media: Mapping[str, Callable[[Any], str | bytes]],
        body_media: tuple[str, ...],
        aliases: Mapping[str, str],
        max_bytes: int,
        streams: type[Struct] | None,
        long: bool,
        json: bool,
        mqtt_only: str,
        parts: Callable[[Any], Parts] | None,
    ) -> None:
        hints = get_type_hints(handler)
        parameters = [name for name in hints if name != "return"]
        self.request = cast("type[Request[Any]]", hints[parameters[1]])
        self.answer: Any = hints["return"]  # a struct
        self.handler = handler
        self.group = group
        self.method, _, self.path = http.partition(" ")
        self.right = right
        self.changes = changes
        self.entity = entity
        self.media = dict(media)
        self.body_media = body_media
        self.aliases = dict(aliases)
        self.max_bytes = max_bytes
        self.streams = streams
        self.long = long
        self.json = json
        self.mqtt_only = mqtt_only
        self.parts = parts

    @property
    def action(self) -> str:
        return str(self.request.__struct_config__.tag)

    @property
    def name(self) -> str:
        """Unique, such as `policies.put_policy`."""
        return f"{self.group}.{self.action.replace(' ', '_')}"

    @property
    def topic(self) -> str:
        return f"{NODE_TOPICS}{self.group}"

    @property
    def asks_others(self) -> bool:
        """Whether it can be asked of another node: it reads, and answers soon, at once."""
        return not (self.changes or self.streams or self.long)

    @cached_property
    def fields(self) -> dict[str, msgspec.structs.FieldInfo]:
        """Its own ones."""
        found = msgspec.structs.fields(self.request)
        return {each.name: each for each in found if each.name != NODE}

    @cached_property
    def path_fields(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{(\w+)\}", self.path))

    @property
    def has_body(self) -> bool:
        return self.method in ("PUT", "POST", "PATCH")

    @cached_property
    def body_fields(self) -> tuple[str, ...]:
        """Fields that are in the body over HTTP; none if the body is the `entity`."""
        if not self.has_body or self.entity:
            return ()
        return tuple(name for name in self.fields if name not in (*self.path_fields, *CONDITIONS))

    @cached_property
    def query_fields(self) -> tuple[str, ...]:
        """Fields that are parameters of the query over HTTP."""
        node = (NODE,) if self.asks_others else ()
        if self.has_body and not self.entity:
            return node
        left_out = {*self.path_fields, *CONDITIONS}
        if self.has_body:
            left_out |= {self.entity, "toml"}
        return (*(name for name in self.fields if name not in left_out), *node)

    @property
    def description(self) -> str:
        return " ".join((self.handler.__doc__ or "").split())

    def check_right(self, asker: Asker) -> None:
        """Raises `RequestError` if the asker lacks the right."""
        if not asker.has(self.right):
            who = "you" if asker.client else asker.user or "an anonymous client"
            remedy = f"it takes the right {self.right.value}"
            raise RequestError(403, f"{who} may not use {self.name}", remedy=remedy)

    def perform(self, node: Any, request: Request[Any], asker: Asker) -> Any:
        """The answer, or an awaitable of it. Raises `RequestError` if the asker lacks the right."""
        self.check_right(asker)
        if request.node and (not self.asks_others or request.node != node.view.name):
            return self._ask_other(node, request, asker)
        found = self.handler(node, request, asker)
        if not self.changes:
            return found
        if isinstance(found, Awaitable):
            return self._recorded(node, request, asker, found)
        self._audit(node, request, asker)
        return found

    def _ask_other(self, node: Any, request: Request[Any], asker: Asker) -> Awaitable[Any]:
        if not self.asks_others:
            problem = f"{self.name} can't be asked through another node"
            raise RequestError(400, problem, NODE, remedy="ask that node directly")
        if node.others is None:
            problem = "this node can't ask other nodes"
            raise RequestError(404, problem, NODE, remedy="ask a node of the backbone")
        asked: Awaitable[Any] = node.others.ask(request.node, request, asker)
        return asked

    async def _recorded(
        self, node: Any, request: Request[Any], asker: Asker, found: Awaitable[Any]
    ) -> Any:
        answer = await found
        self._audit(node, request, asker)
        return answer

    def _audit(self, node: Any, request: Request[Any], asker: Asker) -> None:
        channel = str(getattr(request, "channel", "") or "")
        subject = subject_of(request)
        node.audit(self.name, asker, brief(request), subject=subject, channel=channel)


_by_request: Final[dict[type[Request[Any]], Operation]] = {}


def operation(  # noqa: PLR0913 (what is declared of an operation)
    group: str,
    http: str = "",
    right: Right = Right.ANY,
    *,
    changes: bool = False,
    entity: str = "",
    media: Mapping[str, Callable[[Any], str | bytes]] | None = None,
    body_media: tuple[str, ...] = (JSON,),
    aliases: Mapping[str, str] | None = None,
    max_bytes: int = MAX_BYTES,
    streams: type[Struct] | None = None,
    long: bool = False,
    json: bool = True,
    mqtt_only: str = "",
    parts: Callable[[Any], Parts] | None = None,
) -> Callable[[Handler], Handler]:
    """Declare an operation; see `Operation`."""
    assert bool(http) != bool(mqtt_only), "a path, or the reason why there is none"

    def declare(handler: Handler) -> Handler:
        made = Operation(
            handler,
            group,
            http,
            right,
            changes=changes,
            entity=entity,
            media=media or {},
            body_media=body_media,
            aliases=aliases or {},
            max_bytes=max_bytes,
            streams=streams,
            long=long,
            json=json,
            mqtt_only=mqtt_only,
            parts=parts,
        )
        assert made.request not in _by_request, made.name
        _by_request[made.request] = made
        return handler

    return declare


def operation_of(request: type[Request[Any]]) -> Operation:
    return _by_request[request]


def declared() -> Iterator[Operation]:
    yield from _by_request.values()


def decoding_problem(error: Exception, actions: tuple[str, ...] = ()) -> RequestError:
    """A decoder's error in this project's wording."""
    if isinstance(error, RecursionError):
        return RequestError(400, "JSON is nested too deeply", "request")
    text = str(error)
    found = _LOCATION.search(text)
    place = (found[1][:_MAX_QUOTED] if found else "") or "request"
    if place == "do" or "missing required field `do`" in text:
        return RequestError(400, f"expected one of {', '.join(actions)}", "do")
    if "truncated" in text:
        return RequestError(
            400, "expected a JSON object, got nothing or only a part of one", "request"
        )
    problem = _LOCATION.sub("", text).replace("`", "")[:_MAX_QUOTED]  # it quotes the request
    is_name = problem[:2].isupper()  # such as JSON
    return RequestError(400, problem if is_name else problem[:1].lower() + problem[1:], place)


def has_origin(type_: Any, origins: tuple[type, ...]) -> bool:
    """Whether the type, or one of its alternatives, is one of these containers."""
    return any(get_origin(each) in origins for each in _alternatives(type_))


def takes_text(type_: Any) -> bool:
    """Whether the type, or one of its alternatives, is any text."""
    return any(each is str for each in _alternatives(type_))


def _alternatives(type_: Any) -> Iterator[Any]:
    origin = get_origin(type_)
    if origin is Annotated:
        yield from _alternatives(get_args(type_)[0])
    elif origin in (Union, UnionType):
        for each in get_args(type_):
            yield from _alternatives(each)
    else:
        yield type_


def subject_of(request: Request[Any]) -> str:
    """The name of what the request is about; empty if it names nothing."""
    for field in _SUBJECTS:
        found = getattr(request, field, None)
        found = getattr(found, "name", found)
        if isinstance(found, str | int) and not isinstance(found, bool) and found != "":
            return str(found)
    return ""


def brief(request: Request[Any]) -> str:
    """The request as text of bounded length, for logs."""
    text = msgspec.json.encode(request).decode(errors="replace")
    return text if len(text) <= _MAX_BRIEF else f"{text[:_MAX_BRIEF]}…"
