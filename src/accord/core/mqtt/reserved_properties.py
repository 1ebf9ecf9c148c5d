"""User properties of the node's own, on kept events that it sends again, answers and DISCONNECT.

Clients can't set them.
"""

from __future__ import annotations

from typing import Final

OWN: Final = "accord-"  # how all of them begin
CHANNEL: Final = "accord-channel"
EVENT: Final = "accord-event"
RECEIVED: Final = "accord-received-ms"
PUBLISHER: Final = "accord-publisher"
NODE: Final = "accord-node"  # where the publisher is a client
ORIGIN: Final = "accord-origin"  # in a journal, an event's name where that is another: NUMBER@NODE
PAGE: Final = "accord-page"  # the message behind the events of a page: (PAGE, END)
END: Final = "end"
ENDED: Final = "accord-ended"  # of a DISCONNECT: the filter of a subscription that the node ended
