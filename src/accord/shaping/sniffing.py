"""Detects the kind and size of an image from its header, without decoding it."""

from __future__ import annotations

from typing import Final

JPEG: Final = "image/jpeg"
PNG: Final = "image/png"
WEBP: Final = "image/webp"

HEAD: Final = 512  # bytes that suffice to detect a kind of content

# Start-of-frame markers; the others of the range are tables and extensions.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE: Final = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length
_MAX_MARKERS: Final = 1_000


def sniff(head: bytes) -> str:
    """The content type of an image that starts with `head`; "" if not supported."""
    if head.startswith(b"\xff\xd8\xff"):
        return JPEG
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WEBP
    return ""


def pixels(payload: bytes) -> int:
    """The number of pixels of an image; 0 if its header does not contain it."""
    kind = sniff(payload[:HEAD])
    if kind == JPEG:
        return _jpeg_pixels(payload)
    if kind == PNG:
        return _big(payload[16:20]) * _big(payload[20:24]) if payload[12:16] == b"IHDR" else 0
    return _webp_pixels(payload) if kind == WEBP else 0


def _jpeg_pixels(payload: bytes) -> int:
    at = 2
    for _ in range(_MAX_MARKERS):
        at = payload.find(b"\xff", at)
        if at < 0 or at + 4 > len(payload):
            return 0
        marker = payload[at + 1]
        if marker in _FRAMES:
            return _big(payload[at + 5 : at + 7]) * _big(payload[at + 7 : at + 9])
        if marker == 0xDA:  # start of the image data
            return 0
        if marker == 0xFF:
            at += 1
        elif marker in _BARE:
            at += 2
        else:
            at += 2 + _big(payload[at + 2 : at + 4])
    return 0


def _webp_pixels(payload: bytes) -> int:
    chunk = payload[12:16]
    if chunk == b"VP8X":
        return (_little(payload[24:27]) + 1) * (_little(payload[27:30]) + 1)
    if chunk == b"VP8L":
        bits = _little(payload[21:25])
        return ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1)
    if chunk == b"VP8 ":
        return (_little(payload[26:28]) & 0x3FFF) * (_little(payload[28:30]) & 0x3FFF)
    return 0


def _big(octets: bytes) -> int:
    return int.from_bytes(octets, "big")


def _little(octets: bytes) -> int:
    return int.from_bytes(octets, "little")
