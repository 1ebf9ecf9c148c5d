"""Send queue of a link, in strict priority: link messages, then control, then data.

Control messages are queued only while the connection accepts nothing. Data is pulled when there is
room, at most one piece at a time: larger messages are fragmented, so that control never waits
behind more than a piece. A started message is finished before other data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from accord.core.links.codec import CONTROL, DATA, FRAME_BYTES, LAST, LINK, PART, frame, frame_of
from accord.core.links.errors import CloseReason, LinkError
from accord.core.links.options import LinkOptions, LinkTraffic

# Returns encoded messages of about the given number of bytes, or a little more.
Pull = Callable[[int], list[bytes]]

# Smaller pieces would consist mostly of headers.
_MIN_PIECE: Final = 1_400


class LinkSendQueue:
    """Queued link frames, control messages and pulled data of one connection."""

    def __init__(self, options: LinkOptions, traffic: LinkTraffic) -> None:
        self.message_bytes = options.message_bytes  # largest message that the peer accepts
        self._options = options
        self._traffic = traffic
        self._frames: list[bytes] = []  # of class LINK
        self._control: list[bytes] = []
        self._control_bytes = 0
        self._data: deque[bytes] = deque()
        self._data_bytes = 0
        self._cut = 0  # bytes of the first message that are already sent

    @property
    def buffered_bytes(self) -> int:
        return self._control_bytes + self._data_bytes - self._cut

    @property
    def has_control(self) -> bool:
        return bool(self._frames or self._control)

    @property
    def has_data(self) -> bool:
        """Whether pulled data is waiting."""
        return bool(self._data)

    def put_link(self, body: bytes) -> None:
        self._frames.append(frame(LINK, body))

    def put_control(self, message: bytes) -> bool:
        """Queue a message; False if it is too large. Raises `LinkError` if the queue is full."""
        size = len(message)
        if not self._is_small_enough(size):
            return False
        if self._control_bytes + size > self._options.control_bytes:
            waiting = self._control_bytes
            raise LinkError(
                CloseReason.BEHIND, f"{waiting} bytes of control messages are queued, none was sent"
            )
        self._control.append(message)
        self._control_bytes += size
        return True

    def put_data(self, messages: list[bytes]) -> None:
        for message in messages:
            size = len(message)
            if self._is_small_enough(size):
                self._data.append(message)
                self._data_bytes += size

    def take_control(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        count = self._traffic.sent.link
        for each in frames:
            count.add(1, 1, len(each))
        if self._control:
            frames += self._control_frames()
        return frames

    def take_data(self, room: int, pull: Pull) -> list[bytes]:
        """Frames for `room` bytes, or a little more."""
        frames = []
        piece_bytes = self._piece_bytes()
        while room > 0:
            if not self._data:
                pulled = pull(min(room, piece_bytes))
                if not pulled:
                    break
                self.put_data(pulled)
                continue  # all messages may have been too large
            made = self._next_frame(min(max(room, _MIN_PIECE), piece_bytes))
            frames.append(made)
            room -= len(made)
        return frames

    def clear(self) -> None:
        """Discard control and data; link messages are still sent."""
        self._control.clear()
        self._data.clear()
        self._control_bytes = self._data_bytes = self._cut = 0

    def _piece_bytes(self) -> int:
        return min(self._options.piece_bytes, self.message_bytes - FRAME_BYTES)

    def _is_small_enough(self, size: int) -> bool:
        if size <= self.message_bytes - FRAME_BYTES:
            return True
        self._traffic.too_large += 1
        return False

    def _control_frames(self) -> list[bytes]:
        frames = []
        piece_bytes = self._piece_bytes()
        count = self._traffic.sent.control
        start = size = 0
        messages = self._control
        for at, message in enumerate(messages):
            if size and size + len(message) > piece_bytes:
                frames.append(frame_of(CONTROL, messages[start:at]))
                count.add(1, at - start, len(frames[-1]))
                start, size = at, 0
            size += len(message)
        frames.append(frame_of(CONTROL, messages[start:]))
        count.add(1, len(messages) - start, len(frames[-1]))
        messages.clear()
        self._control_bytes = 0
        return frames

    def _next_frame(self, piece: int) -> bytes:
        data = self._data
        if self._cut or len(data[0]) > piece:
            return self._next_piece(piece)
        messages = []
        size = 0
        while data and size + len(data[0]) <= piece:
            message = data.popleft()
            messages.append(message)
            size += len(message)
        self._data_bytes -= size
        made = frame_of(DATA, messages)
        self._traffic.sent.data.add(1, len(messages), len(made))
        return made

    def _next_piece(self, piece: int) -> bytes:
        message = self._data[0]
        end = self._cut + piece
        body = memoryview(message)[self._cut : end]
        is_last = end >= len(message)
        if is_last:
            self._data.popleft()
            self._data_bytes -= len(message)
            self._cut = 0
        else:
            self._cut = end
        made = frame(LAST if is_last else PART, body)
        self._traffic.sent.data.add(1, int(is_last), len(made))
        return made
