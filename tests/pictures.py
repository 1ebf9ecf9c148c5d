"""Images as cameras make them: gradients, soft structures and noise."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from PIL import Image


def photo(width: int = 800, height: int = 600) -> Image.Image:
    round_light = Image.radial_gradient("L").resize((width, height))
    sky = Image.linear_gradient("L").resize((width, height))
    clouds = Image.effect_noise((max(1, width // 8), max(1, height // 8)), 60).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    grain = Image.effect_noise((width, height), 50).convert("RGB")
    red, green = Image.blend(round_light, clouds, 0.5), Image.blend(sky, clouds, 0.3)
    picture = Image.merge("RGB", (red, green, Image.blend(red, green, 0.5)))
    return Image.blend(picture, grain, 0.12)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    sink = BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def decoded(payload: bytes) -> Image.Image:
    image = Image.open(BytesIO(payload))
    image.load()
    return image


def surveillance_jpeg() -> bytes:
    """Between 42 and 70 KB."""
    payload = encoded(photo(), "JPEG", quality=68)
    assert 42_000 <= len(payload) <= 70_000
    return payload
