"""Resolves duplicate links: one connection per pair of nodes.

If both ends dial, the connection dialled by the node with the smaller name stays: both ends decide
alike, whichever they see first. A node that dials a second connection itself has lost the first. A
different incarnation means either a restarted node or a name conflict. In the first case the old
link is silent; so while the existing link is alive, another incarnation is refused.
"""

from __future__ import annotations

from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.handshake import LinkPeer


def reason_to_refuse(
    own: str, standing: LinkPeer | None, new: LinkPeer, *, is_heard: bool
) -> LinkError | None:
    """Why `new` is refused; None if it replaces `standing`.

    `is_heard`: a message arrived over `standing` recently.
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
