"""Options that commands share, and what they make of them.

A parameter of one of these types becomes the options that it is made from:

- `NodeHttpClient` and `ConnectionTarget`: --url, --context, --user, --ca (a target: --client too)
- `AnyNodeHttpClient`: --node besides
- `Output`: --json, --watch, --every
- `Paging`: --limit, --offset, --search, --sort, --descending
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from accord.cli.arguments import read_choice, read_duration_s
from accord.cli.connection import (
    DEFAULT_HTTP_URL,
    DEFAULT_URL,
    PANEL,
    PASSWORD,
    ConnectionTarget,
    UnreachableError,
    read_target,
)
from accord.cli.http_client import AnyNodeHttpClient, NodeHttpClient
from accord.cli.parameters import shared
from accord.client import contexts
from accord.core.model.errors import InputError
from accord.terminal.screen import open_console, safe

COMPLETION_S: Final = 0.3

T = TypeVar("T")
Action = Callable[..., None]


def complete_contexts(incomplete: str) -> list[str]:
    with suppress(InputError):
        return [name for name in contexts.load().contexts if name.startswith(incomplete)]
    return []


IsJson = Annotated[
    bool, shared(None, "Print JSON as the HTTP API has it, an object per line.", "--json")
]
IsWatching = Annotated[bool, shared(None, "Refresh until Ctrl-C.", "--watch", "-w")]
Every = Annotated[str, shared("TIME", "Interval between two samples.", "--every")]
Url = Annotated[
    str | None,
    shared(
        "URL",
        "Address of the node: mqtt://HOST:PORT; or mqtts, ws, wss.",
        "--url",
        show_default=f"--context, ACCORD_URL, the context in use, or {DEFAULT_URL}",
        rich_help_panel=PANEL,
    ),
]
HttpUrl = Annotated[
    str | None,
    shared(
        "URL",
        "HTTP address of the node.",
        "--url",
        show_default="--context, ACCORD_HTTP_URL, ACCORD_URL (its host, port 8080), "
        f"the context in use, or {DEFAULT_HTTP_URL}",
        rich_help_panel=PANEL,
    ),
]
ContextName = Annotated[
    str | None,
    shared(
        "NAME",
        "Context to use: `accord context ls` lists them.",
        "--context",
        envvar="ACCORD_CONTEXT",
        rich_help_panel=PANEL,
        autocompletion=complete_contexts,
    ),
]
User = Annotated[
    str | None,
    shared(
        "NAME",
        f"User name; the password comes from {PASSWORD} or a prompt.",
        "--user",
        envvar="ACCORD_USER",
        show_envvar=False,
        rich_help_panel=PANEL,
    ),
]
Authority = Annotated[
    Path | None,
    shared("FILE", "Certificates (PEM) of authorities to trust.", "--ca", rich_help_panel=PANEL),
]
OtherNode = Annotated[
    str,
    shared(
        "NAME", "Ask this node of the network, through the other.", "--node", show_default=False
    ),
]
Client = Annotated[
    str | None, shared("NAME", "Client identifier; default: chosen by the node.", "--client")
]

Limit = Annotated[int, shared("N", "How many at most.", min=1, max=1_000)]
Offset = Annotated[int, shared("N", "How many to pass over.", min=0)]
Search = Annotated[str, shared("TEXT", "Only those with TEXT in their names, in any case.")]
Sort = Annotated[str | None, shared("FIELD", "A field of --json to sort by.")]
IsDescending = Annotated[bool, shared(None, "Largest first.", "--descending")]
Where = Annotated[
    str | None, shared("PREDICATE", "Only events that match, such as: load_mw > 4", "--where", "-w")
]
XPathCondition = Annotated[
    str | None,
    shared("CONDITION", "The same as an XPath 1.0 condition on XML metadata.", "--xpath"),
]


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a long list is wanted."""

    limit: int
    offset: int
    search: str
    sort: str | None
    is_descending: bool

    def fields(self, sortable: object) -> dict[str, Any]:
        """The fields of a request; `sortable` is the type of its field `sort`."""
        fields = {"limit": self.limit, "offset": self.offset, "search": self.search}
        if self.sort is not None:
            fields["sort"] = read_choice(self.sort, get_args(sortable), "--sort")
        return {**fields, "descending": self.is_descending}


@dataclass(frozen=True, slots=True)
class Output:
    """Shows what a node answers: once, or again and again."""

    is_json: bool
    is_watching: bool
    every_s: float

    def show(
        self,
        fetch: Callable[[], T],
        draw: Callable[[T], RenderableType],
        objects: Callable[[T], Sequence[object]] = lambda found: (found,),
        *,
        is_full_screen: bool = True,
    ) -> None:
        """Print what `draw` makes of it, or with --json its `objects`, a line each."""
        try:
            if self.is_watching and not self.is_json and open_console().is_terminal:
                watch(fetch, draw, self.every_s, is_full_screen=is_full_screen)
            while True:
                found = fetch()
                if self.is_json:
                    print_json(*objects(found))
                else:
                    open_console().print(draw(found))
                if not self.is_watching:
                    return
                time.sleep(self.every_s)
        except KeyboardInterrupt:
            raise typer.Exit from None


def print_json(*values: object) -> None:
    for value in values:
        typer.echo(msgspec.json.encode(value).decode())


def print_answer(found: T, draw: Callable[[T], RenderableType], *, is_json: bool) -> None:
    if is_json:
        print_json(found)
    else:
        open_console().print(draw(found))


def watch(
    fetch: Callable[[], T],
    draw: Callable[[T], RenderableType],
    every_s: float,
    *,
    is_full_screen: bool = True,
) -> None:
    """Redraw in place; if the node becomes unreachable, the last picture stays."""
    picture, lost = draw(fetch()), Text()
    with Live(console=open_console(), auto_refresh=False, screen=is_full_screen) as live:
        while True:
            live.update(Group(lost, picture) if lost else picture, refresh=True)
            time.sleep(every_s)
            try:
                picture, lost = draw(fetch()), Text()
            except UnreachableError as error:
                lost = Text(f"no answer: {safe(str(error))}", "bold yellow", no_wrap=True)


def http_client(
    url: str | None, context_name: str | None, user: str | None, authority: Path | None
) -> NodeHttpClient:
    return NodeHttpClient(*_http_target(url, context_name, user, authority))


def any_node_client(
    url: str | None,
    context_name: str | None,
    user: str | None,
    authority: Path | None,
    other: str,
) -> AnyNodeHttpClient:
    return AnyNodeHttpClient(*_http_target(url, context_name, user, authority), other)


def _http_target(
    url: str | None, context_name: str | None, user: str | None, authority: Path | None
) -> tuple[str, str | None, Path | None]:
    given = url or (None if context_name else _http_url_of_environment())
    if not given and (found := contexts.chosen(context_name)):
        given, user, authority = found.http_url, *_credentials(found, user, authority)
    return given or DEFAULT_HTTP_URL, user, authority


def _http_url_of_environment() -> str | None:
    mqtt = os.environ.get("ACCORD_URL")
    if (given := os.environ.get("ACCORD_HTTP_URL")) or not mqtt:
        return given
    return mqtt if mqtt.startswith("http") else contexts.http_url_of(mqtt)


def connection_target(
    url: str | None,
    context_name: str | None,
    user: str | None,
    authority: Path | None,
    client: str | None = None,
) -> ConnectionTarget:
    given = url or (None if context_name else os.environ.get("ACCORD_URL"))
    if not given and (found := contexts.chosen(context_name)):
        given, user, authority = found.url, *_credentials(found, user, authority)
    return read_target(given or DEFAULT_URL, user, authority, client)


def _credentials(
    found: contexts.NodeContext, user: str | None, authority: Path | None
) -> tuple[str | None, Path | None]:
    return user or found.user or None, authority or (Path(found.ca) if found.ca else None)


def output(is_json: bool, is_watching: bool, every: str) -> Output:
    return Output(is_json, is_watching, read_duration_s(every, "--every"))


_NODE: Final = (
    ("context_name", ContextName, None),
    ("user", User, None),
    ("authority", Authority, None),
)
_PARTS: Final[dict[object, tuple[Callable[..., object], tuple[tuple[str, Any, object], ...]]]] = {
    NodeHttpClient: (http_client, (("url", HttpUrl, None), *_NODE)),
    AnyNodeHttpClient: (
        any_node_client,
        (("other", OtherNode, ""), ("url", HttpUrl, None), *_NODE),
    ),
    ConnectionTarget: (
        connection_target,
        (("client", Client, None), ("url", Url, None), *_NODE),
    ),
    Paging: (
        Paging,
        (
            ("limit", Limit, 100),
            ("offset", Offset, 0),
            ("search", Search, ""),
            ("sort", Sort, None),
            ("is_descending", IsDescending, False),
        ),
    ),
    Output: (
        output,
        (("is_json", IsJson, False), ("is_watching", IsWatching, False), ("every", Every, "1s")),
    ),
}


class CommandGroup(typer.Typer):
    """A group of commands with the options of `command`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"no_args_is_help": True, **settings})

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Action], Action]:  # type: ignore[override]
        return self._with_options(super().command(name, **settings))

    def callback(self, **settings: Any) -> Callable[[Action], Action]:  # type: ignore[override]
        return self._with_options(super().callback(**settings))

    def _with_options(self, register: Callable[[Action], Action]) -> Callable[[Action], Action]:
        def add(function: Action) -> Action:
            register(command(function))
            return function

        return add


def command(function: Action) -> Action:
    """A command whose parameters of these types are made from options."""
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    made: dict[str, tuple[Callable[..., object], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    shared: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if hints[name] not in _PARTS:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        build, options = _PARTS[hints[name]]
        made[name] = build, [option for option, _, _ in options]
        kind = inspect.Parameter.KEYWORD_ONLY
        shared += [
            inspect.Parameter(option, kind, annotation=hint, default=default)
            for option, hint, default in options
        ]

    @functools.wraps(function)
    def run(_context: typer.Context, **given: Any) -> None:
        parts = {
            name: functools.partial(build, **{each: given.pop(each) for each in options})
            for name, (build, options) in made.items()
        }
        if _context.invoked_subcommand is not None:
            _check_group_options(_context)
        else:
            function(**given, **{name: build() for name, build in parts.items()})

    current = inspect.Parameter(
        "_context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters.insert(0, current)
    run.__signature__ = signature.replace(parameters=[*parameters, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*parameters, *shared)}
    del run.__wrapped__
    return run


def _check_group_options(found: typer.Context) -> None:
    """Reject options given before a subcommand, which would not get them."""
    for name in found.params:
        source = found.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            problem = f"expected options after {found.invoked_subcommand}"
            raise InputError(f"accord {found.info_name}", problem)


def _channel_names(node: NodeHttpClient) -> list[str]:
    from accord.operations.channels import ListChannels  # noqa: PLC0415

    return [each.name for each in node.call(ListChannels(), COMPLETION_S).channels]


def _policy_names(node: NodeHttpClient) -> list[str]:
    from accord.operations.policies import GetPolicies  # noqa: PLC0415

    found = node.call(GetPolicies(), COMPLETION_S).policy_set
    return [each["name"] for each in found["policies"]]


def _completion(names: Callable[[NodeHttpClient], list[str]]) -> Callable[..., list[str]]:
    def complete(found: typer.Context, incomplete: str) -> list[str]:
        """Names from the node, if it answers at once."""
        options = ("url", "context_name", "user", "authority")
        with suppress(Exception):  # a shell that completes must not show anything else
            node = http_client(**{name: found.params.get(name) for name in options})
            return [name for name in names(node) if name.startswith(incomplete)]
        return []

    return complete


complete_channels = _completion(_channel_names)
complete_policies = _completion(_policy_names)
