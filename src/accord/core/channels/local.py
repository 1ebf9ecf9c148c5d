"""Events that stay where they are published: for what only matters on one node."""

from __future__ import annotations

from accord.core.channels.template import Template


class Local(Template):
    """The node's own router has done all there is to do."""
