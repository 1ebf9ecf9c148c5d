"""Sizes and durations as `accord.toml` writes them: `16 MB`, `64 MiB`, `24h`."""

from __future__ import annotations

from accord.core.model.units import DURATIONS_S, SIZES, parse, render


def parse_size(text: str) -> int | None:
    """Bytes, or None if `text` is not a whole number of them."""
    return parse(text, SIZES)


def parse_duration(text: str) -> int | None:
    """Seconds, or None if `text` is not a whole number of them."""
    return parse(text, DURATIONS_S)


def format_size(size: int) -> str:
    """The shortest way to write `size` exactly."""
    return render(size, SIZES)


def format_duration(duration_s: int) -> str:
    return render(duration_s, DURATIONS_S, space="")
