"""What a link can carry: a plain TCP transfer as fast as it goes.

`transfer receive HOST PORT SECONDS WINDOW` or `transfer send HOST PORT`. The window, in bytes,
should fill the link, but not the queue before it: what is lost there would come twice.
"""

from __future__ import annotations

import socket
import sys
from time import monotonic, sleep
from typing import Final

_PATIENCE_S: Final = 20.0
# What a full queue and a slow start make of the first moments is not counted.
_WARM_UP_S: Final = 2.0
_CHUNK: Final = bytes(4_096)


def receive(host: str, port: int, seconds: float, window: int) -> float:
    """Bytes per second after the warm-up."""
    with socket.create_server((host, port)) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, window)
        server.settimeout(_PATIENCE_S)
        connection, _ = server.accept()
    with connection:
        connection.settimeout(_PATIENCE_S)
        connection.recv(len(_CHUNK))
        first_s = monotonic() + _WARM_UP_S
        count, now_s = 0, monotonic()
        while now_s < first_s + seconds:
            size = len(connection.recv(len(_CHUNK)))
            now_s = monotonic()
            if now_s >= first_s:
                count += size
        return count / (now_s - first_s)


def send(host: str, port: int) -> None:
    """Until the other side has had enough, or the caller ends it."""
    for _ in range(100):
        try:
            connection = socket.create_connection((host, port), _PATIENCE_S)
            break
        except ConnectionError:
            sleep(0.05)
    else:
        raise SystemExit(f"nobody listens at {host}:{port}")
    with connection:
        try:
            while True:
                connection.sendall(_CHUNK)
        except ConnectionError:
            return


def main() -> None:
    verb, host, port, *rest = sys.argv[1:]
    if verb == "receive":
        print(f"{receive(host, int(port), float(rest[0]), int(rest[1])):.0f} bytes/s")
    else:
        send(host, int(port))


if __name__ == "__main__":
    main()
