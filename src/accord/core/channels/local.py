"""Events that stay at the node where they are published."""

from __future__ import annotations

from accord.core.channels.template import Template


class Local(Template):
    """Does nothing: the node's own router has already delivered the events."""
