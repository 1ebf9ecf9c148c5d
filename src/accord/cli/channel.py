"""`accord channel …`: requirements of channels on their routes between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from accord.cli.arguments import check_filter, read_duration_s, read_pairs
from accord.cli.http_client import NodeHttpClient
from accord.cli.net import met_text, required_text, share_text
from accord.cli.options import CommandGroup, IsJson, Output, Paging, complete_channels, print_answer
from accord.cli.parameters import argument, flag, option
from accord.cli.top import ChannelActivityRow
from accord.core.channels.history.messages import PERSISTENT, problem_with
from accord.core.model.channels import filter_selects
from accord.core.model.errors import InputError
from accord.core.overlay.channel_directory import (
    Channel,
    ChannelDefinition,
    specificity,
)
from accord.operations.activity import ChannelField, ListChannelActivity
from accord.operations.channels import CreateChannel, DeleteChannel, ListChannels
from accord.terminal.rows import Cell, Column, Count, fields, page, table
from accord.terminal.screen import safe

Name = Annotated[
    str,
    argument(
        "NAME",
        "A channel, or a filter such as grid/#",
        show_default=False,
        autocompletion=complete_channels,
    ),
]

app = CommandGroup()


@app.command("create")
def create(
    name: Name,
    *,
    template: str = option(
        "NAME",
        "The guarantee: routed, single_source, unreliable, reliable, total_order, local "
        "(not to other nodes at all), or one that is installed.",
        default="routed",
    ),
    max_delay: str | None = option("TIME", "Maximum delay of its events, such as 200ms."),
    paths: int = option("N", "Number of paths that events take at once.", min=1, default=1),
    resiliency: float = option(
        "P", "Minimum probability that one path is up; 0: use all paths.", min=0, max=1, default=0.0
    ),
    has_datagrams: bool = flag("Allow UDP for QoS 0 events, which may lose them.", "--datagrams"),
    keeps_all: bool = flag(
        "Keep all events: new subscribers get them first. With --option persistent=7d "
        "they look back so far.",
        "--persistent",
    ),
    option: list[str] | None = option("NAME=VALUE", "Option of the template; may be repeated."),
    replaces: bool = flag("Replace a different definition.", "--replace"),
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Define a channel, or all that a filter selects, for all nodes."""
    check_filter(name, "NAME")
    delay_s = 0.0
    if max_delay is not None:
        delay_s = read_duration_s(max_delay, "--max-delay", needs_unit=True)
    wanted = CreateChannel(
        name=name,
        replaces=replaces,
        template=template,
        max_delay_ms=round(delay_s * 1_000, 3),
        paths=paths,
        resiliency=resiliency,
        options=_options(option or (), has_datagrams=has_datagrams, keeps_all=keeps_all),
    )
    print_answer(node.call(wanted), _draw_one, is_json=is_json)


@app.command("ls")
def ls(*, output: Output, node: NodeHttpClient) -> None:
    """List the channels that are defined at any node, and whether they get what they require."""
    output.show(lambda: node.call(ListChannels()).channels, _draw, lambda found: found)


@app.command("activity")
def list_activity(*, paging: Paging, output: Output, node: NodeHttpClient) -> None:
    """List the channels that had events since the start, also idle ones; `accord top` is live."""
    ask = ListChannelActivity(**paging.fields(ChannelField))
    output.show(
        lambda: node.call(ask),
        lambda found: page(table(ChannelActivityRow, found.channels), found.matching, found.offset),
        lambda found: found.channels,
    )


@app.command("show")
def show(name: Name, *, is_json: IsJson = False, node: NodeHttpClient) -> None:
    """Show one channel: what it requires, where it is defined, and what it gets."""
    found = node.call(ListChannels()).channels
    wider = [each for each in found if filter_selects(each.name, name)]
    channel = next((each for each in found if each.name == name), None)
    if channel is None and not wider:
        raise InputError("NAME", f"{name!r} is not defined; `accord channel ls` shows what is")
    if channel is None:
        channel = max(wider, key=lambda each: specificity(ChannelDefinition(each.name)))
        typer.echo(f"{safe(name)} is not defined, but {safe(channel.name)} selects it", err=True)
    print_answer(channel, _draw_one, is_json=is_json)


@app.command("rm")
def rm(name: Name, *, node: NodeHttpClient) -> None:
    """Delete the definition of a channel, at whichever node it was made."""
    deleted = node.call(DeleteChannel(name=name))
    typer.echo(f"{safe(name)} is not defined any more")
    if deleted.comes_back:
        typer.echo("until the node restarts: its accord.toml defines it", err=True)


app.command("list", hidden=True)(ls)
app.command("remove", hidden=True)(rm)


def _draw(channels: Sequence[Channel]) -> RenderableType:
    if not channels:
        return Text("no channels are defined: events take the shortest route")
    return table(DefinedChannelRow, channels)


def _draw_one(channel: Channel) -> RenderableType:
    found = [
        ("channel", channel.name),
        ("template", channel.template),
        ("requires", _required(channel)),
        ("defined at", channel.node),
    ]
    if channel.options:
        found.append(("options", _option_text(channel)))
    if channel.missing_at:
        found.append(("not installed", f"the template, at {', '.join(channel.missing_at)}"))
    if channel.flows:
        found.append(("met", f"by {channel.flows_met} of {channel.flows} flows"))
    if channel.delivered:
        counts = f"{channel.delivered:,} delivered, {channel.late:,} late"
        found.append(("in time", f"{_in_time(channel)} ({counts})"))
    return fields(found)


def _required(channel: Channel) -> str:
    return required_text(
        channel.max_delay_ms * 1_000, channel.paths, channel.resiliency, channel.template
    )


def _option_text(channel: Channel) -> str:
    pairs = (f"{name}={value}" for name, value in sorted(channel.options.items()))
    return ", ".join(pairs)


def _in_time(channel: Channel) -> str:
    return share_text(channel.delivered - channel.late, channel.delivered)


class DefinedChannelRow(msgspec.Struct, frozen=True):
    name: Annotated[str, Column("channel")]
    template: str
    requires: Annotated[str, Column(of=_required)]
    met: Annotated[Cell, Column(of=lambda each: met_text(each.flows, each.flows_met))]
    delivered: Count
    late: Count
    in_time: Annotated[str, Column(of=_in_time, is_number=True)]
    node: Annotated[str, Column("defined at")]
    options: Annotated[str, Column(of=_option_text, is_optional=True)]
    missing_at: Annotated[Sequence[str], Column("not installed at", ", ".join, is_optional=True)]


def _options(texts: Sequence[str], *, has_datagrams: bool, keeps_all: bool) -> dict[str, str]:
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
