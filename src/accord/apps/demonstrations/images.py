"""Aerial images: JPEG files as cameras over a landscape would take them, from a seed.

A landscape of fields, woods, a river, roads and houses is painted once. A camera flies over it, so
that each of its images shows a little more of the path ahead, with its name and position in a
corner. The JPEG quality is chosen so that each image has about the requested size.
"""

from __future__ import annotations

import io
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image, ImageDraw

    Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]

VIEW: Final = (640, 480)
MIN_BYTES: Final = 42_000
MAX_BYTES: Final = 70_000

_SIDE: Final = 1_600
_COARSE: Final = 400  # the landscape's patches are painted at a quarter of its size
_PATCHES: Final = 90
_HOUSES: Final = 130
_TREES: Final = 2_600
HOME: Final = (46.69, 7.87)
_METRES_PER_PIXEL: Final = 0.8
_METRES_PER_DEGREE: Final = 111_320.0
_QUALITIES: Final = (30, 95)
_CROPS: Final = (
    (142, 150, 92), (168, 158, 98), (108, 132, 72), (184, 172, 120), (122, 112, 78), (88, 118, 64),
)  # fmt: skip
_WOOD: Final = (52, 78, 46)
_WATER: Final = (58, 84, 98)
_ROAD: Final = (168, 164, 156)


class View(NamedTuple):
    """An image, and where the camera was."""

    lat: float
    lon: float
    altitude_m: int
    jpeg: bytes


class Camera:
    """Flies a circle over the landscape; `zoom` is relative to the widest view."""

    def __init__(self, name: str, *, seed: int, radius: float, zoom: float = 1.0) -> None:
        self.name = name
        self._seed = seed
        self._radius = radius
        self._zoom = zoom

    def view(self, number: int) -> View:
        """The image of that number: always the same."""
        angle = 2.4 * self._seed + number * 0.11
        x, y = (_SIDE / 2 + self._radius * turn(angle) for turn in (math.cos, math.sin))
        lat = HOME[0] + (_SIDE / 2 - y) * _METRES_PER_PIXEL / _METRES_PER_DEGREE
        lon = HOME[1] + (x - _SIDE / 2) * _METRES_PER_PIXEL / (
            _METRES_PER_DEGREE * math.cos(math.radians(HOME[0]))
        )
        altitude_m = round((340 + 25 * math.sin(number / 5)) / self._zoom)
        heading = round(math.degrees(angle)) % 360
        words = f"{self.name}  {lat:.5f} N {lon:.5f} E  ALT {altitude_m} m  HDG {heading:03d}"
        picture = _crop(x, y, angle, self._zoom)
        _mark(picture, words, f"#{number:04d}")
        wanted = MIN_BYTES + (7_919 * number + 3_571 * self._seed) % (MAX_BYTES - MIN_BYTES)
        return View(lat, lon, altitude_m, _encode(picture, wanted))


def _crop(x: float, y: float, angle: float, zoom: float) -> Image.Image:
    """The landscape as seen from above (x, y), turned into the direction of flight."""
    from PIL import Image  # noqa: PLC0415 - takes a while

    width, height = VIEW
    across = math.hypot(width, height) / zoom / 2 + 2
    box = (round(x - across), round(y - across), round(x + across), round(y + across))
    turned = _landscape().crop(box).rotate(math.degrees(angle), Image.Resampling.BILINEAR)
    seen_x, seen_y = width / zoom / 2, height / zoom / 2
    middle = turned.width / 2
    view = turned.crop(
        (
            round(middle - seen_x),
            round(middle - seen_y),
            round(middle + seen_x),
            round(middle + seen_y),
        )
    )
    return view.resize(VIEW, Image.Resampling.BICUBIC)


def _mark(picture: Image.Image, words: str, number: str) -> None:
    from PIL import ImageDraw  # noqa: PLC0415

    draw = ImageDraw.Draw(picture)
    width, height = VIEW
    draw.rectangle((0, height - 18, width, height), fill=(12, 16, 14))
    draw.text((8, height - 15), words, fill=(190, 255, 190))
    draw.text((width - 44, height - 15), number, fill=(190, 255, 190))
    x, y = width // 2, height // 2
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        draw.line((x + 8 * dx, y + 8 * dy, x + 26 * dx, y + 26 * dy), fill=(220, 255, 220))


def _encode(picture: Image.Image, wanted: int) -> bytes:
    """The JPEG file of the best quality that is not larger than `wanted`."""
    low, high = _QUALITIES
    best = _jpeg(picture, low)
    while low < high:
        middle = (low + high + 1) // 2
        made = _jpeg(picture, middle)
        if len(made) <= wanted:
            low, best = middle, made
        else:
            high = middle - 1
    # At low quality one step may be large: prefer the next one to an image below the range.
    if len(best) < MIN_BYTES and len(made := _jpeg(picture, low + 1)) <= MAX_BYTES:
        return made
    return best


def _jpeg(picture: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


@cache
def _landscape() -> Image.Image:
    """A square landscape, the same in every process."""
    import numpy as np  # noqa: PLC0415
    from PIL import Image, ImageDraw  # noqa: PLC0415

    random = np.random.default_rng(1944)
    land = Image.fromarray(_patches(random)).resize((_SIDE, _SIDE), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(land)
    river = _road(random, bends=90.0)
    draw.line(river, fill=(96, 104, 78), width=54, joint="curve")
    draw.line(river, fill=_WATER, width=38, joint="curve")
    roads = [_road(random, bends=45.0) for _ in range(3)]
    roads += [[(y, x) for x, y in _road(random, bends=35.0)] for _ in range(3)]
    for road in roads:
        draw.line(road, fill=(112, 106, 92), width=15, joint="curve")
        draw.line(road, fill=_ROAD, width=10, joint="curve")
    _plant(draw, random)
    _build(draw, random, roads)
    return Image.fromarray(_lit(np.asarray(land), random))


def _patches(random: np.random.Generator) -> Pixels:
    """Fields with furrows, and woods, around random points."""
    import numpy as np  # noqa: PLC0415

    points = random.uniform(0, _COARSE, (_PATCHES, 2))
    rows, columns = np.mgrid[0:_COARSE, 0:_COARSE]
    distance = (rows[..., None] - points[:, 0]) ** 2 + (columns[..., None] - points[:, 1]) ** 2
    nearest = distance.argmin(axis=2)
    colours = np.array([*_CROPS, _WOOD, _WOOD])[random.integers(0, len(_CROPS) + 2, _PATCHES)]
    angles = random.uniform(0, math.pi, _PATCHES)[nearest]
    furrows = np.sin((rows * np.cos(angles) + columns * np.sin(angles)) * 1.9) * 7
    land = colours[nearest] + furrows[..., None]
    return _pixels(land)


def _lit(land: Pixels, random: np.random.Generator) -> Pixels:
    """Add hills in light and shade, and the grain of a camera."""
    import numpy as np  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    height = np.zeros((_SIDE, _SIDE))
    for cells, share in ((6, 1.0), (14, 0.5), (40, 0.22), (130, 0.1)):
        rough = Image.fromarray(random.uniform(-1, 1, (cells, cells)).astype(np.float32))
        height += share * np.asarray(rough.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))
    slope = np.gradient(height, axis=0) + np.gradient(height, axis=1)
    light = 1 + np.clip(slope * 14, -0.28, 0.28) + height * 0.05
    grain = random.normal(0, 5.0, (_SIDE, _SIDE))
    return _pixels(land * light[..., None] + grain[..., None])


def _pixels(values: np.ndarray[Any, Any]) -> Pixels:
    import numpy as np  # noqa: PLC0415

    pixels: Pixels = np.clip(values, 0, 255).astype(np.uint8)
    return pixels


def _road(random: np.random.Generator, *, bends: float) -> list[tuple[float, float]]:
    """A road or river from edge to edge."""
    x = float(random.uniform(0.2, 0.8)) * _SIDE
    points = []
    for y in range(-40, _SIDE + 41, 40):
        x += float(random.normal(0, bends / 3))
        x += (_SIDE / 2 - x) * 0.02
        points.append((x, float(y)))
    return points


def _plant(draw: ImageDraw.ImageDraw, random: np.random.Generator) -> None:
    for x, y, size in random.uniform((0, 0, 3), (_SIDE, _SIDE, 8), (_TREES, 3)):
        draw.ellipse((x + 2, y + 3, x + size + 3, y + size + 4), fill=(38, 48, 34))
        green = int(66 + 26 * (x * 7 % 1))
        draw.ellipse((x, y, x + size, y + size), fill=(48, green, 40))


def _build(
    draw: ImageDraw.ImageDraw, random: np.random.Generator, roads: list[list[tuple[float, float]]]
) -> None:
    """Draw houses along the roads, and a convoy on the first of them."""
    roofs = ((150, 82, 62), (128, 120, 116), (172, 168, 164), (96, 70, 58))
    for number in range(_HOUSES):
        road = roads[number % len(roads)]
        x, y = road[int(random.integers(2, len(road) - 2))]
        x, y = x + float(random.normal(0, 34)), y + float(random.normal(0, 34))
        wide, deep = random.uniform(9, 22, 2)
        draw.rectangle((x + 4, y + 5, x + wide + 5, y + deep + 6), fill=(46, 46, 42))
        draw.rectangle((x, y, x + wide, y + deep), fill=roofs[number % len(roofs)])
        draw.line((x, y + deep / 2, x + wide, y + deep / 2), fill=(70, 54, 48))
    for x, y in roads[0][14:22]:
        draw.rectangle((x - 3, y - 6, x + 4, y + 7), fill=(36, 42, 34))
        draw.rectangle((x - 2, y - 4, x + 3, y + 1), fill=(84, 92, 70))
