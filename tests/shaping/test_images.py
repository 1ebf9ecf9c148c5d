from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.pictures import decoded, encoded, photo, surveillance_jpeg

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.content import Content, ShapingError
from accord.shaping.image_files import MAX_PIXELS, ImageFile
from accord.shaping.images import Scaling, scale

SMALL = {kind: encoded(photo(160, 120), kind) for kind in ("JPEG", "PNG", "WEBP")}


@pytest.mark.parametrize("share", [0.9, 0.5, 0.25, 0.1])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"quality": 68}),
        ("JPEG", {"quality": 90, "progressive": True}),
        ("WEBP", {"quality": 70}),
        ("WEBP", {"lossless": True}),
        ("PNG", {}),
    ],
)
def test_an_image_gets_into_its_bytes_and_stays_what_it_was(
    kind: str, options: dict[str, object], share: float
) -> None:
    payload = encoded(photo(400, 300), kind, **options)
    target = int(share * len(payload))
    shaped = scale(payload, target, 0)
    image = decoded(shaped)
    assert len(shaped) <= target
    assert image.format == kind
    assert image.width / image.height == pytest.approx(4 / 3, rel=0.05)


def test_what_a_surveillance_image_may_take_is_made_use_of() -> None:
    payload = surveillance_jpeg()
    for target in (8_192, 16_384, 23_170, 32_768):
        assert 0.6 * target <= len(scale(payload, target, 0)) <= target


def test_few_encodes_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    encodes: list[float] = []
    encode = ImageFile.encode

    def counted(image: ImageFile, scale: float, quality: int) -> bytes:
        encodes.append(scale)
        return encode(image, scale, quality)

    monkeypatch.setattr(ImageFile, "encode", counted)
    targets = (8_192, 11_585, 16_384, 23_170, 32_768)
    payload = surveillance_jpeg()
    for target in targets:
        scale(payload, target, 0)
    assert len(encodes) <= 3 * len(targets)


def test_a_jpeg_that_shrinks_much_is_not_decoded_in_full() -> None:
    image = ImageFile(surveillance_jpeg())
    image.load(0.2)
    assert decoded(image.encode(1.0, 60)).width == 800 // 4


@pytest.mark.parametrize("kind", SMALL)
def test_an_image_gets_into_its_pixels(kind: str) -> None:
    image = decoded(scale(SMALL[kind], 0, 4_800))
    assert 0.9 * 4_800 <= image.width * image.height <= 4_800
    assert image.format == kind


@pytest.mark.parametrize("kind", SMALL)
def test_both_targets_are_met(kind: str) -> None:
    shaped = scale(SMALL[kind], 2_000 if kind != "PNG" else 20_000, 9_000)
    assert len(shaped) <= (2_000 if kind != "PNG" else 20_000)
    image = decoded(shaped)
    assert image.width * image.height <= 9_000


@pytest.mark.parametrize("kind", SMALL)
def test_what_fits_is_left_alone(kind: str) -> None:
    payload = SMALL[kind]
    assert scale(payload, len(payload), 160 * 120) is payload
    assert scale(payload, 0, 0) is payload


def test_an_image_below_the_floor_is_as_small_as_makes_sense() -> None:
    payload = surveillance_jpeg()
    shaped = scale(payload, 100, 0)
    assert len(shaped) < len(payload) // 20
    image = decoded(shaped)
    assert 3_500 <= image.width * image.height <= 4_500


def test_fewer_pixels_never_take_more_bytes() -> None:
    payload = encoded(photo(400, 300), "JPEG", quality=5)
    assert len(scale(payload, 0, 399 * 300)) <= len(payload)


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x0132] = "2024:11:16 04:00:00"
    exif[0x8825] = {1: "N", 2: (39.0, 44.0, 30.0)}
    return exif


@pytest.mark.parametrize("kind", SMALL)
def test_which_way_is_up_and_where_it_was_taken_stays(kind: str) -> None:
    payload = encoded(photo(400, 300), kind, exif=_exif())
    image = decoded(scale(payload, len(payload) // 2, 0))
    assert image.width > image.height  # not turned, and still said to be turned
    found = image.getexif()
    assert found[0x0112] == 6
    assert found[0x0132] == "2024:11:16 04:00:00"
    assert found.get_ifd(0x8825)[1] == "N"


def test_what_is_told_about_an_image_gives_way_before_the_image() -> None:
    exif = _exif()
    exif[0x010E] = "described at length " * 1_000
    options = {"exif": exif, "icc_profile": b"p" * 3_000, "comment": b"on patrol"}
    payload = encoded(photo(400, 300), "JPEG", **options)
    image = decoded(scale(payload, 10_000, 0))
    found = image.getexif()
    assert 0x010E not in found
    assert found[0x0112] == 6
    assert found.get_ifd(0x8825)[1] == "N"
    assert "icc_profile" not in image.info
    assert image.info["comment"] == b"on patrol"


def test_in_a_very_small_image_there_is_room_for_the_orientation_only() -> None:
    payload = encoded(photo(400, 300), "JPEG", exif=_exif())
    assert dict(decoded(scale(payload, 500, 0)).getexif()) == {0x0112: 6}


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("PNG", mode) for mode in ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")),
        *(("JPEG", mode) for mode in ("L", "RGB", "CMYK")),
        *(("WEBP", mode) for mode in ("L", "RGB", "RGBA")),
    ],
)
def test_every_mode_can_be_scaled(kind: str, mode: str) -> None:
    source = photo(300, 200)
    image = Image.new("I;16", (300, 200), 700) if mode == "I;16" else source.convert(mode)
    payload = encoded(image, kind)
    before, after = decoded(payload), decoded(scale(payload, 0, 10_000))
    assert after.width * after.height <= 10_000
    assert after.mode == {"1": "L"}.get(before.mode, before.mode)


def test_what_is_transparent_stays_transparent() -> None:
    image = photo(200, 200).convert("RGBA")
    image.putalpha(Image.new("L", (200, 200), 0))
    palette = image.convert("RGB").quantize(16)
    for payload in (
        encoded(image, "PNG"),
        encoded(image, "WEBP"),
        encoded(palette, "PNG", transparency=0),
        encoded(photo(200, 200), "PNG", transparency=(0, 0, 0)),
    ):
        assert decoded(scale(payload, 0, 5_000)).has_transparency_data


def test_an_animation_becomes_its_first_image() -> None:
    frames = [photo(100, 100), photo(100, 100)]
    for kind in ("WEBP", "PNG"):
        payload = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        assert getattr(decoded(scale(payload, 0, 4_900)), "n_frames", 1) == 1


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_a_truncated_image_is_a_clear_error(kind: str, share: float) -> None:
    payload = encoded(photo(400, 300), kind)
    with pytest.raises(ShapingError, match=f"a broken {kind} image"):
        scale(payload[: int(share * len(payload))], 1_000, 0)


@pytest.mark.parametrize("payload", [b"", b"hello", b"GIF89a" + bytes(100)])
def test_what_is_no_image_is_a_clear_error(payload: bytes) -> None:
    with pytest.raises(ShapingError, match="expected a JPEG, PNG or WebP image"):
        scale(payload, 1_000, 0)


def _bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1_000_000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000, 2**31 - 1])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(side: int) -> None:
    with pytest.raises(ShapingError, match=f"at most {MAX_PIXELS} accepted|decompression bomb"):
        scale(_bomb(side, side), 1_000, 0)


@settings(max_examples=150)
@given(st.sampled_from(sorted(SMALL)), st.data())
def test_damaged_images_are_shaped_or_refused(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(SMALL[kind])
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        shaped = scale(bytes(damaged), len(damaged) // 3, 0)
    except ShapingError:
        return
    assert len(shaped) <= len(damaged)


def test_scaling_goes_by_the_bytes_and_not_by_what_is_said_of_them() -> None:
    scaling = Scaling()
    assert scaling.accepts("", SMALL["JPEG"][:20])
    assert scaling.accepts("text/plain", SMALL["WEBP"][:20])
    assert not scaling.accepts("image/jpeg", b"hello")
    assert not scaling.accepts("image/gif", b"")


def test_all_but_the_payload_stays() -> None:
    content = Content(SMALL["JPEG"], "image/jpeg", (("platform", "UAV"),))
    shaped = Scaling().shape(content, ShapingTarget("scaling", 2_000))
    assert len(shaped.payload) <= 2_000
    assert (shaped.content_type, shaped.properties) == (content.content_type, content.properties)
