"""`accord quality …`: expectations and profiles with their states, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.arguments import check_filter
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import CommandGroup, Output
from accord.cli.parameters import argument, option, shared
from accord.client.quality_files import (
    check_name,
    read_document,
    read_registry,
    read_text,
    write_document,
)
from accord.core.quality.status import (
    CapabilityStatus,
    ChannelQuality,
    ExpectationStatus,
    PropertyStatus,
    QualityStatus,
)
from accord.operations.quality import DefineProperties, GetQuality, ListProperties
from accord.terminal.amounts import count_text
from accord.terminal.rows import Column, table
from accord.terminal.screen import safe

_STYLES: Final = {
    "satisfied": "green",
    "satisfiable": "yellow",
    "unsatisfied": "red",
    "suspended": "dim",
}
_ABOUT: Final = ("utility", "publishers", "id")

Definitions = Annotated[
    list[Path] | None, shared("FILE", "Definitions of further properties.", "--properties")
]

app = CommandGroup(no_args_is_help=False, invoke_without_command=True)


@app.callback()
def quality(
    *,
    channel: str = option("FILTER", "Only these channels.", default="#"),
    output: Output,
    node: NodeHttpClient,
) -> None:
    """Show profiles, the best of them, and expectations with their states and reasons."""
    check_filter(channel, "--channel")
    output.show(lambda: node.call(GetQuality(channel=channel)), draw_quality)


@app.command("properties")
def properties(*, output: Output, node: NodeHttpClient) -> None:
    """List the properties that can be expected and offered."""
    output.show(
        lambda: node.call(ListProperties()).properties, draw_properties, lambda found: found
    )


@app.command("define")
def define(
    file: Path = argument("FILE", "Properties, as key = value lines."),
    *,
    node: NodeHttpClient,
) -> None:
    """Define properties for all nodes, from now on."""
    read_registry([file])  # reports the line of a problem
    defined = node.call(DefineProperties(text=read_text(file)))
    typer.echo(f"defined: {', '.join(defined.properties)}")


@app.command("check")
def check(
    file: Path = argument("FILE", "Expectations and profiles, .xml or .json."),
    *,
    definitions: Definitions = None,
) -> None:
    """Check a file of expectations and profiles, and say where it is wrong."""
    stored = read_document(file, definitions or ())
    expectations = count_text(len(stored.expectations), "expectation")
    typer.echo(f"{file}: {expectations}, {count_text(len(stored.profiles), 'profile')}")


@app.command("convert")
def convert(
    source: Path = argument("IN", "An .xml or .json file."),
    target: Path = argument("OUT", "An .xml or .json file."),
    *,
    definitions: Definitions = None,
) -> None:
    """Convert a file of expectations and profiles to XML or JSON."""
    check_name(target)
    write_document(target, read_document(source, definitions or ()))


def draw_properties(found: Sequence[PropertyStatus]) -> RenderableType:
    return table(PropertyRow, found)


def draw_quality(status: QualityStatus) -> RenderableType:
    parts: list[RenderableType] = [_summary(status)]
    for channel in status.channels:
        parts += ["", *_channel(channel)]
    if status.left_off:
        parts += ["", f"… and {status.left_off:,} more: name a channel to see them"]
    return Group(*parts)


def _summary(status: QualityStatus) -> Text:
    totals = status.totals
    counted = [f"{count:,} {state}" for state, count in totals.states.items() if count]
    expectations = count_text(sum(totals.states.values()), "expectation")
    return Text(
        f"node {safe(status.node)}, strategy {status.strategy}: "
        f"{count_text(totals.profiles, 'profile')}, {expectations}"
        + (f" ({', '.join(counted)})" if counted else "")
        + f"; advised {count_text(totals.advice, 'time')}, "
        + count_text(totals.reactions, "reaction")
    )


def _channel(channel: ChannelQuality) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(safe(channel.channel), "bold")]
    if channel.profiles:
        parts.append(table(ProfileRow, channel.profiles, indent=2))
    for skyline in channel.skylines:
        members = ", ".join(map(safe, skyline.members)) or "nobody"
        parts.append(Text(f"  best of {', '.join(skyline.properties)}: {members}", "dim"))
    if channel.expectations:
        parts.append(table(ExpectationRow, channel.expectations, indent=2))
    return parts


def _capability(capability: CapabilityStatus) -> str:
    now = _value(capability.current)
    if capability.is_measured:
        return f"{capability.property} {now} (measured)"
    return f"{capability.property} {now} of {_range((capability.lower, capability.upper))}"


def _why(expectation: ExpectationStatus) -> str:
    why = [f"{name} is {_value(now)}" for name, now in expectation.reasons.items()]
    return "; ".join([*why, expectation.decision] if expectation.decision else why)


def _values(each: PropertyStatus) -> str:
    return " < ".join(each.levels) if each.levels else _range(each.range or (None, None))


def _wanted(expect: dict[str, Any]) -> str:
    parts = [
        f"{safe(name)} {_range(bounds)}" for name, bounds in expect.items() if name not in _ABOUT
    ]
    if expect.get("publishers", 1) != 1:
        parts.append(f"of {expect['publishers']}")
    return f"{', '.join(parts)} (worth {expect.get('utility', 1):g})"


def _range(bounds: Sequence[Any]) -> str:
    low, high = ("" if each is None else _value(each) for each in bounds)
    return f"{low}–{high}" if low and high else f"≥ {low}" if low else f"≤ {high}"


def _value(value: object) -> str:
    if value is None:
        return "unknown"
    return safe(value) if isinstance(value, str) else f"{value:.4g}"


class PropertyRow(msgspec.Struct, frozen=True):
    name: Annotated[str, Column("property")]
    values: Annotated[str, Column(of=_values)]
    better: str
    unit: str
    over_hops: str
    measured: Annotated[bool, Column("by", lambda by: "nodes" if by else "publishers")]


class ProfileRow(msgspec.Struct, frozen=True):
    publisher: str
    capabilities: Annotated[str, Column("offers", lambda all_: ", ".join(map(_capability, all_)))]
    expectations: Annotated[int, Column("used by")]
    utility: float


class ExpectationRow(msgspec.Struct, frozen=True):
    id: Annotated[str, Column("expectation")]
    client: Annotated[str, Column("of")]
    expect: Annotated[dict[str, Any], Column("expects", _wanted)]
    state: Annotated[str, Column(unit=lambda state: Text(state, _STYLES.get(state, "")))]
    why: Annotated[str, Column(of=_why)]
