"""Validation of node names."""

from __future__ import annotations

from typing import Final

NAME_BYTES: Final = 64


def name_problem(name: str) -> str:
    """The problem with a node's name; empty if it is valid."""
    if not name:
        return "the node's name is empty"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "the node's name is no valid text"
    if size > NAME_BYTES:
        return f"the node's name has {size} bytes, at most {NAME_BYTES} are allowed"
    if any(character.isspace() or not character.isprintable() for character in name):
        return f"the node's name {name!r} contains spaces or control characters"
    return ""
