"""User properties reserved for the node, on kept events it sends, replies and DISCONNECT.

Clients can't set them.
"""

from __future__ import annotations

from typing import Final

OWN: Final = "accord-"  # their common prefix
CHANNEL: Final = "accord-channel"
EVENT: Final = "accord-event"
RECEIVED: Final = "accord-received-ms"
PUBLISHER: Final = "accord-publisher"
NODE: Final = "accord-node"  # the publisher's node
ORIGIN: Final = "accord-origin"  # in a journal, the event ID if it differs: NUMBER@NODE
PAGE: Final = "accord-page"  # the message after the events of a page: (PAGE, END)
END: Final = "end"
ENDED: Final = "accord-ended"  # in a DISCONNECT: the filter of a subscription that the node ended
