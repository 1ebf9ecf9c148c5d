"""Formats requirements, times and shares of the overlay."""

from __future__ import annotations

from typing import Final

from accord.cli.quantities import latency_text
from accord.cli.table import NOTHING

LOCAL: Final = "local"
ROUTED: Final = "routed"


def required_text(
    max_delay_us: float, paths: int, resiliency: float, template: str = ROUTED
) -> str:
    """The requirements of a channel or a flow."""
    if template == LOCAL:
        return "stays on its node"
    parts = []
    if max_delay_us:
        parts.append(f"within {time_text(max_delay_us)}")
    if paths > 1:
        parts.append(f"{paths} paths")
    if resiliency:
        parts.append(f"resiliency {resiliency:g}")
    return ", ".join(parts) or ("any route" if template == ROUTED else NOTHING)


def time_text(time_us: float) -> str:
    """At most three significant digits."""
    text = latency_text(time_us / 1e6) if time_us > 0 else "0 ms"
    value, _, unit = text.partition(" ")
    return f"{value.rstrip('0').rstrip('.')} {unit}" if "." in value else text


def share_text(part: int, whole: int) -> str:
    """In percent; 100 % only if nothing is missing."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if part < whole:
        percent = min(percent, 99.99)
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def path_text(path: tuple[str, ...]) -> str:
    return " → ".join(path)
