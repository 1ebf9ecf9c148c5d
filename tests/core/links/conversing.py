"""Two ends of a link, and what goes between them, in memory."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.links.codec import LinkCodec
from accord.core.links.errors import LinkError
from accord.core.links.handshake import Admit, LinkPeer, LocalIdentity, RemoteEndpoint, SharedKey
from accord.core.links.options import LinkOptions
from accord.core.links.session import LinkSession

S: Final = 1_000_000
KEY: Final = SharedKey(b"a secret of all nodes")
AFAR: Final = RemoteEndpoint(address="192.0.2.1")
HERE: Final = RemoteEndpoint(address="127.0.0.1", is_loopback=True)


class Note(Struct, frozen=True, array_like=True, tag="n"):
    """A message of control."""

    number: int
    text: str = ""


class Load(Struct, frozen=True, array_like=True, tag="l"):
    """A message of data."""

    number: int
    payload: bytes


CODEC: Final = LinkCodec(Note | Load)
encode: Final = msgspec.msgpack.encode


def load(number: int, size: int = 100) -> bytes:
    return encode(Load(number, bytes([number % 256]) * size))


def admit_all(_: LinkPeer) -> LinkError | None:
    return None


class Source:
    """What an outbox has for a link: encoded messages."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = list(messages)
        self.asked: list[int] = []

    def pull(self, bytes_wanted: int) -> list[bytes]:
        self.asked.append(bytes_wanted)
        taken: list[bytes] = []
        size = 0
        while self.messages and size < bytes_wanted:
            taken.append(self.messages.pop(0))
            size += len(taken[-1])
        return taken


class Ends:
    """A dialer called athens and a listener called berlin; both may be changed before they talk."""

    def __init__(
        self,
        *,
        athens: LocalIdentity | None = None,
        berlin: LocalIdentity | None = None,
        remote: RemoteEndpoint = AFAR,
        options: LinkOptions | None = None,
        admit: Admit = admit_all,
        other_admit: Admit = admit_all,
    ) -> None:
        self.options = options or LinkOptions()
        self.dialer = self._session(
            athens or LocalIdentity(node="athens", incarnation=1, key=KEY),
            remote,
            admit,
            True,
            b"a" * 32,
        )
        self.listener = self._session(
            berlin or LocalIdentity(node="berlin", incarnation=2, key=KEY),
            remote,
            other_admit,
            False,
            b"b" * 32,
        )
        self.now_us = 0
        self.to_dialer: list[Any] = []
        self.to_listener: list[Any] = []
        self.wire: list[bytes] = []  # all that was sent, in order

    def _session(
        self,
        local: LocalIdentity,
        remote: RemoteEndpoint,
        admit: Admit,
        is_dialer: bool,
        nonce: bytes,
    ) -> LinkSession:
        return LinkSession(
            CODEC,
            local,
            remote,
            is_dialer=is_dialer,
            nonce=nonce,
            admit=admit,
            now_us=0,
            options=self.options,
        )

    def talk(self) -> None:
        """Carry control both ways until nobody has anything to say."""
        while True:
            there = b"".join(self.dialer.take_control(self.now_us))
            back = b"".join(self.listener.take_control(self.now_us))
            if not there and not back:
                return
            self.wire += [each for each in (there, back) if each]
            self.to_listener += self.listener.receive(there, self.now_us)
            self.to_dialer += self.dialer.receive(back, self.now_us)
            self.dialer.check_invariants()
            self.listener.check_invariants()

    def send_data(self, source: Source, room: int = 1 << 20) -> list[bytes]:
        """From dialer to listener; gives the frames."""
        frames = self.dialer.take_data(room, source.pull, self.now_us)
        for frame in frames:
            self.to_listener += self.listener.receive(frame, self.now_us)
        return frames


def linked(options: LinkOptions | None = None, **features: int) -> Ends:
    """Two ends after their handshake."""
    ends = Ends(
        athens=LocalIdentity(node="athens", incarnation=1, key=KEY, features=features),
        berlin=LocalIdentity(node="berlin", incarnation=2, key=KEY, features=features),
        options=options,
    )
    ends.talk()
    assert ends.dialer.neighbour is not None
    assert ends.listener.neighbour is not None
    return ends


def why(session: LinkSession) -> str:
    """Why it has ended; nothing while it has not."""
    return "" if session.ended is None else session.ended.reason
