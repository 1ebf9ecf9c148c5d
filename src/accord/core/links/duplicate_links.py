"""One connection per pair of nodes: which of two stays.

Where both open one, that of the node with the smaller name stays: both ends come to the same
result, whichever they see first. Who opens a second one itself has lost the first. A node that has
restarted is known by its incarnation, and so are two nodes with the same name. They differ in that
the former self of a node is silent: as long as the standing one is heard of, another is refused.
"""

from __future__ import annotations

from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.handshake import LinkPeer


def reason_to_refuse(
    own: str, standing: LinkPeer | None, new: LinkPeer, *, is_heard: bool
) -> LinkError | None:
    """Why `new` can't be, or None: then it takes the place of `standing`.

    `is_heard`: that one has said something lately.
    """
    if standing is None:
        return None
    if new.incarnation != standing.incarnation:
        if not is_heard:
            return None
        return LinkError(
            CloseReason.SAME_NAME, f"another node {new.node} is linked with {own}, and alive"
        )
    if new.is_dialed in (standing.is_dialed, own < new.node):
        return None
    return LinkError(CloseReason.DUPLICATE, f"nodes {own} and {new.node} are linked already")
