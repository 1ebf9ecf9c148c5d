from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.pictures import encoded, photo

from accord.shaping.sniffing import HEAD, pixels, sniff


@pytest.mark.parametrize(
    ("kind", "options", "content_type"),
    [
        ("JPEG", {}, "image/jpeg"),
        ("JPEG", {"progressive": True}, "image/jpeg"),
        ("JPEG", {"comment": b"c" * 60_000}, "image/jpeg"),
        ("PNG", {}, "image/png"),
        ("WEBP", {}, "image/webp"),
        ("WEBP", {"lossless": True}, "image/webp"),
        ("WEBP", {"exif": Image.Exif()}, "image/webp"),
    ],
)
def test_images_are_known_by_their_first_bytes(
    kind: str, options: dict[str, object], content_type: str
) -> None:
    payload = encoded(photo(123, 77), kind, **options)
    assert sniff(payload[:HEAD]) == content_type
    assert pixels(payload) == 123 * 77


def test_webp_with_extras_has_another_header() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    payload = encoded(photo(50, 40), "WEBP", exif=exif)
    assert payload[12:16] == b"VP8X"
    assert pixels(payload) == 2_000


@pytest.mark.parametrize("payload", [b"", b"hello", b"GIF89a", b"\xff\xd8", b"RIFF....WAVE"])
def test_all_else_is_no_image(payload: bytes) -> None:
    assert sniff(payload) == ""
    assert pixels(payload) == 0


@given(
    st.sampled_from([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8 "]),
    st.binary(max_size=64),
)
def test_a_broken_header_tells_nothing_and_breaks_nothing(start: bytes, rest: bytes) -> None:
    assert pixels(start + rest) >= 0


def test_a_jpeg_that_never_gets_to_its_image_ends_the_search() -> None:
    assert pixels(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 5_000) == 0
    assert pixels(b"\xff\xd8\xff\xda" + bytes(100)) == 0
