"""Scaling: fits JPEG, PNG and WebP images into a number of pixels or bytes.

The size of an image is only known once it is encoded. A model makes the first estimate: bytes grow
with the area, and with the quality by a curve that is similar for all photographs. Each encode
corrects the next estimate, so two or three usually suffice. Quality is reduced first, down to where
blocks become visible; from there the image shrinks.

A JPEG that will shrink much is decoded at a fraction of its size. EXIF data is kept as it is,
orientation and position included: pixels are never rotated. Only the first image of an animation
is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from math import log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from accord.core.scheduling.shaping_decision import MIN_PIXELS, ShapingTarget
from accord.shaping.content import Content
from accord.shaping.sniffing import PNG, sniff

if TYPE_CHECKING:
    from accord.shaping.image_files import ImageFile

_TYPES: Final = frozenset(("image/jpeg", "image/jpg", "image/pjpeg", "image/png", "image/webp"))

_BEST: Final = 90  # no image gains from more
_SHRUNK: Final = 62  # quality of images that have to shrink as well
_LOW: Final = 50  # below this, less quality is worse than fewer pixels
_LOWEST: Final = 20  # for the smallest images only
_CURVE: Final[tuple[tuple[int, float], ...]] = (
    (1, 0.06), (5, 0.11), (10, 0.16), (20, 0.24), (30, 0.32), (40, 0.40), (50, 0.48), (60, 0.57),
    (70, 0.71), (80, 1.0), (85, 1.25), (90, 1.65), (95, 2.4), (100, 4.4),
)  # fmt: skip
_QUALITIES: Final = tuple(quality for quality, _ in _CURVE)
_WEIGHTS: Final = tuple(weight for _, weight in _CURVE)

_ENCODES: Final = 5
_CLOSE: Final = 0.9  # of the target: closer is not worth another encode
_LESS_CLOSE: Final = 0.06  # by which `_CLOSE` drops after each encode
_AIM: Final = 0.93
_HASTE: Final = 1.2  # sizes grow more slowly than requested, most of all in small images
_ROOM: Final = 1.25  # factor by which the first estimate may be too small


class Scaling:
    """Shaper for images."""

    name = "scaling"

    def accepts(self, content_type: str, head: bytes) -> bool:
        """Judged by the bytes, if any; a publisher's content type may be missing or wrong."""
        return bool(sniff(head)) or (not head and _bare(content_type) in _TYPES)

    def shape(self, content: Content, shape: ShapingTarget) -> Content:
        payload = scale(content.payload, shape.max_bytes, shape.max_pixels)
        return Content(payload, content.content_type, content.properties)


def scale(payload: bytes, max_bytes: int, max_pixels: int) -> bytes:
    """The image with at most so many pixels and bytes (0: no limit), in its format.

    As close as possible if even the smallest sensible image is larger; never larger than before.
    Raises ShapingError if `payload` is not an image, is broken or too large to decode.
    """
    # Imported here, because it loads Pillow.
    from accord.shaping.image_files import ImageFile  # noqa: PLC0415

    image = ImageFile(payload)
    has_enough = 0 < max_pixels < image.pixels
    if not has_enough and not 0 < max_bytes < len(payload):
        return payload
    target = min(max_bytes or len(payload), len(payload))
    image.keep_metadata_within(target // 4)
    top = min(1.0, sqrt(max_pixels / image.pixels)) if max_pixels else 1.0
    return _Search(image, target, Model(image, top)).run()


class Step(NamedTuple):
    """Scale and quality of one encode."""

    scale: float
    quality: int


class Model:
    """Estimates the bytes of an image at a scale and quality."""

    def __init__(self, image: ImageFile, top: float) -> None:
        """For scales up to `top`."""
        self._top = top
        self._floor = min(sqrt(MIN_PIXELS / image.pixels), top)
        self._best = min(image.quality, _BEST)
        self._is_lossy = image.content_type != PNG
        self._overhead = image.overhead
        self._factor = max(1, len(image.payload) - image.overhead) / self._weight(image.quality)

    def plan(self, size: float) -> Step:
        """The best image expected to take `size` bytes."""
        wanted = max(1.0, size - self._overhead) / self._factor
        if not self._is_lossy:
            return Step(self._bounded(sqrt(wanted)), self._best)
        low = min(_LOW, self._best)
        if wanted >= self._top**2 * self._weight(low):
            return Step(self._top, min(self._best, _quality(wanted / self._top**2)))
        quality = min(_SHRUNK, self._best)
        scale = self._bounded(sqrt(wanted / self._weight(quality)))
        if scale == self._floor:
            quality = min(quality, max(_LOWEST, _quality(wanted / scale**2)))
        return Step(scale, quality)

    def is_best(self, step: Step) -> bool:
        return step == Step(self._top, self._best)

    def _bounded(self, scale: float) -> float:
        return min(self._top, max(self._floor, scale))

    def _weight(self, quality: int) -> float:
        return _weight(quality) if self._is_lossy else 1.0


class _Search:
    """Encodes repeatedly until an image is close to its target size.

    The size requested of the model (*ask*) and the encoded size grow together, but not
    proportionally: the next ask is interpolated between the largest that fitted and the smallest
    that did not.
    """

    def __init__(self, image: ImageFile, target: int, model: Model) -> None:
        self._image = image
        self._target = target
        self._model = model
        self._fitted: tuple[float, int] | None = None
        self._missed: tuple[float, int] | None = None

    def run(self) -> bytes:
        fitting, smallest = b"", self._image.payload
        ask = _AIM * self._target
        tried: set[Step] = set()
        for _ in range(_ENCODES):
            step = self._model.plan(ask)
            if step in tried:
                break
            if not tried:
                self._image.load(min(1.0, step.scale * _ROOM))
            tried.add(step)
            encoded = self._image.encode(step.scale, step.quality)
            size = len(encoded)
            if size <= self._target:
                fitting = max(fitting, encoded, key=len)
                close = _CLOSE - _LESS_CLOSE * len(tried)
                if size >= close * self._target or self._model.is_best(step):
                    break
                self._fitted = ask, size
            else:
                smallest = min(smallest, encoded, key=len)
                self._missed = ask, size
            ask = self._next(ask * (_AIM * self._target / size) ** _HASTE)
        return fitting or smallest

    def _next(self, ask: float) -> float:
        """The next ask: `ask` itself until one size has fitted and another has not."""
        if self._fitted is None or self._missed is None:
            return ask
        (low, less), (high, more) = self._fitted, self._missed
        share: float = log(_AIM * self._target / less) / log(more / less)
        return low * float((high / low) ** min(0.9, max(0.1, share)))


def _bare(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _weight(quality: int) -> float:
    """Relative bytes of a quality."""
    return _between(quality, _QUALITIES, _WEIGHTS)


def _quality(weight: float) -> int:
    """Inverse of `_weight`."""
    return int(_between(weight, _WEIGHTS, _QUALITIES))


def _between(value: float, known: tuple[float, ...], others: tuple[float, ...]) -> float:
    place = min(max(1, bisect_left(known, value)), len(known) - 1)
    share = (value - known[place - 1]) / (known[place] - known[place - 1])
    share = min(1.0, max(0.0, share))
    return others[place - 1] + share * (others[place] - others[place - 1])
