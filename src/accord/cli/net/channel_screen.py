"""Output of channels that are defined for all nodes."""

from __future__ import annotations

from collections.abc import Sequence

from accord.cli.net.screen import met_text
from accord.cli.net.text import required_text, share_text
from accord.cli.table import NOTHING, Table, figures
from accord.core.overlay.channel_directory import Channel


def draw_channels(channels: Sequence[Channel]) -> Table:
    """With columns for options and for nodes that lack the template, if any channel has some."""
    has_options = any(channel.options for channel in channels)
    has_missing = any(channel.missing_at for channel in channels)
    more = ["options"] * has_options + ["not installed at"] * has_missing
    counts = figures("delivered", "late", "in time")
    table = Table("channel", "template", "requires", "met", *counts, "defined at", *more)
    for channel in channels:
        table.add_row(
            channel.name,
            channel.template,
            _required(channel),
            met_text(channel.flows, channel.flows_met),
            f"{channel.delivered:,}" if channel.delivered else NOTHING,
            f"{channel.late:,}" if channel.late else NOTHING,
            _in_time(channel),
            channel.node,
            *([_options(channel)] if has_options else []),
            *([", ".join(channel.missing_at) or NOTHING] if has_missing else []),
        )
    return table


def channel_fields(channel: Channel) -> list[tuple[str, str]]:
    fields = [
        ("channel", channel.name),
        ("template", channel.template),
        ("requires", _required(channel)),
        ("defined at", channel.node),
    ]
    if channel.options:
        fields.append(("options", _options(channel)))
    if channel.missing_at:
        fields.append(("not installed", f"the template, at {', '.join(channel.missing_at)}"))
    if channel.flows:
        fields.append(("met", f"by {channel.flows_met} of {channel.flows} flows"))
    if channel.delivered:
        counts = f"{channel.delivered:,} delivered, {channel.late:,} late"
        fields.append(("in time", f"{_in_time(channel)} ({counts})"))
    return fields


def _required(channel: Channel) -> str:
    return required_text(
        channel.max_delay_ms * 1_000, channel.paths, channel.resiliency, channel.template
    )


def _options(channel: Channel) -> str:
    pairs = (f"{name}={value}" for name, value in sorted(channel.options.items()))
    return ", ".join(pairs) or NOTHING


def _in_time(channel: Channel) -> str:
    return share_text(channel.delivered - channel.late, channel.delivered)
