"""`accord channel …`: requirements of channels on their routes between nodes."""

# Imports stand in the commands: help and completion must not wait for parsers and tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accord.core.overlay.channel_directory import Channel

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A channel, or a filter such as grid/#", show_default=False
    ),
]
IsJson = Annotated[bool, typer.Option("--json", help="JSON, as the HTTP API has it.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Define and list channels: their delivery guarantees between nodes.",
)


@app.command("create")
def create(  # noqa: PLR0913 (a parameter per option)
    name: Name,
    *,
    template: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The guarantee: routed, single_source, unreliable, reliable, total_order, local "
            "(not to other nodes at all), or one that is installed.",
        ),
    ] = "routed",
    max_delay: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Maximum delay of its events, such as 200ms."),
    ] = None,
    paths: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of paths that events take at once.")
    ] = 1,
    resiliency: Annotated[
        float,
        typer.Option(
            metavar="P",
            min=0,
            max=1,
            help="Minimum probability that one path is up; 0: use all paths.",
        ),
    ] = 0.0,
    has_datagrams: Annotated[
        bool,
        typer.Option("--datagrams", help="Allow UDP for QoS 0 events, which may lose them."),
    ] = False,
    keeps_all: Annotated[
        bool,
        typer.Option(
            "--persistent",
            help="Keep all events: new subscribers get them first. With --option persistent=7d "
            "they look back so far.",
        ),
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of the template; may be repeated."),
    ] = None,
    replaces: Annotated[
        bool, typer.Option("--replace", help="Replace a different definition.")
    ] = False,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Define a channel, or all that a filter selects, for all nodes."""
    from accord.cli.net.client import NetClient
    from accord.cli.predicate_text import check_filter
    from accord.cli.quantities import read_duration_s
    from accord.core.overlay.channel_directory import ChannelRequest

    check_filter(name, "NAME")
    delay_s = 0.0
    if max_delay is not None:
        delay_s = read_duration_s(max_delay, "--max-delay", needs_unit=True)
    options = _options(option or (), has_datagrams=has_datagrams, keeps_all=keeps_all)
    wanted = ChannelRequest(
        template=template,
        max_delay_ms=round(delay_s * 1_000, 3),
        paths=paths,
        resiliency=resiliency,
        options=options,
    )
    made = NetClient(url, user, authority).define(name, wanted, replaces=replaces)
    _show(made, is_json=is_json)


@app.command("ls")
def ls(
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """List the channels that are defined at any node, and whether they get what they require."""
    import msgspec

    from accord.cli.net.channel_screen import draw_channels
    from accord.cli.net.client import NetClient
    from accord.cli.screen import open_console, print_line
    from accord.core.overlay.channel_directory import ChannelList

    found = NetClient(url, user, authority).channels()
    if is_json:
        typer.echo(msgspec.json.encode(ChannelList(channels=found)).decode())
    elif found:
        open_console().print(draw_channels(found))
    else:
        print_line(open_console(), "no channels are defined: events take the shortest route")


@app.command("show")
def show(
    name: Name,
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show one channel: what it requires, where it is defined, and what it gets."""
    from accord.cli.errors import InputError
    from accord.cli.net.client import NetClient
    from accord.cli.screen import safe
    from accord.core.model.channels import filter_selects
    from accord.core.overlay.channel_directory import ChannelDefinition, specificity

    found = NetClient(url, user, authority).channels()
    wider = [each for each in found if filter_selects(each.name, name)]
    channel = next((each for each in found if each.name == name), None)
    if channel is None and not wider:
        raise InputError("NAME", f"{name!r} is not defined; `accord channel ls` shows what is")
    if channel is None:
        channel = max(wider, key=lambda each: specificity(ChannelDefinition(each.name)))
        typer.echo(f"{safe(name)} is not defined, but {safe(channel.name)} selects it", err=True)
    _show(channel, is_json=is_json)


@app.command("rm")
def rm(
    name: Name,
    *,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Delete the definition of a channel, at whichever node it was made."""
    from accord.cli.net.client import NetClient
    from accord.cli.screen import safe

    deleted = NetClient(url, user, authority).delete(name)
    typer.echo(f"{safe(name)} is not defined any more")
    if deleted.comes_back:
        typer.echo("until the node restarts: its accord.toml defines it", err=True)


app.command("list", hidden=True)(ls)
app.command("remove", hidden=True)(rm)


def _options(texts: Sequence[str], *, has_datagrams: bool, keeps_all: bool) -> dict[str, str]:
    from accord.cli.errors import InputError
    from accord.cli.policy.edits import read_pairs
    from accord.core.channels.history.messages import PERSISTENT, problem_with

    options: dict[str, str] = {}
    for name, value in read_pairs(texts, "--option"):
        if options.setdefault(name, value) != value:
            problem = f"{name}: both {options[name]!r} and {value!r} can't be"
            raise InputError("--option", problem)
    for is_given, name in ((has_datagrams, "datagrams"), (keeps_all, PERSISTENT)):
        if is_given and options.setdefault(name, "true") in ("", "false"):
            problem = f"--{name} contradicts --option {name}={options[name]}"
            raise InputError("--option", problem)
    if problem := problem_with(options.get(PERSISTENT, "")):
        raise InputError("--option", f"{PERSISTENT}: {problem}")
    return options


def _show(channel: Channel, *, is_json: bool) -> None:
    import msgspec

    from accord.cli.net.channel_screen import channel_fields
    from accord.cli.screen import open_console
    from accord.cli.table import fields

    if is_json:
        typer.echo(msgspec.json.encode(channel).decode())
    else:
        open_console().print(fields(channel_fields(channel)))
