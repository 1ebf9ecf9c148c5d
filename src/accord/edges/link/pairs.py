"""One connection per pair of nodes: which of two stays.

Where both open one, that of the node with the smaller name stays: both ends come to the same
result, whichever they see first. Who opens a second one itself has lost the first. A node that has
restarted is known by its incarnation, and so are two nodes with the same name: the one that
started later is believed.
"""

from __future__ import annotations

from accord.edges.link.errors import LinkError, Why
from accord.edges.link.handshake import Neighbour


def judge(own: str, standing: Neighbour | None, new: Neighbour) -> LinkError | None:
    """Why `new` can't be, or None: then it takes the place of `standing`."""
    if standing is None or new.incarnation > standing.incarnation:
        return None
    if new.incarnation < standing.incarnation:
        problem = f"a node {new.node} that started later is linked already"
        return LinkError(Why.SAME_NAME, problem)
    if new.is_dialed in (standing.is_dialed, own < new.node):
        return None
    return LinkError(Why.DUPLICATE, f"nodes {own} and {new.node} are linked already")
