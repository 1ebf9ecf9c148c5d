"""Scaling: fits JPEG, PNG and WebP images into a number of pixels or bytes.

The size of an image is only known once it is encoded. A model makes the first estimate: bytes grow
with the area, and with the quality by a curve that is similar for all photographs. Each encode
corrects the next estimate, so two or three usually suffice. Quality is reduced first, down to where
blocks become visible; from there the image shrinks.

A JPEG that will shrink much is decoded at a fraction of its size. EXIF data is kept as it is,
orientation and position included: pixels are never rotated. Only the first image of an animation
is kept.

Decodes and encodes images with Pillow, within bounds.

Foreign bytes reach decoders here. Only the three supported formats are tried, an image with too
many pixels is refused before it is decoded, and any exception of a decoder on hostile bytes, which
is documented nowhere, becomes a ShapingError.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from io import BytesIO
from math import log, sqrt
from typing import Any, Final, NamedTuple

from PIL import Image, UnidentifiedImageError

from accord.core.scheduling.shaping_decision import MIN_PIXELS, ShapingTarget
from accord.shaping.content import HEAD, JPEG, PNG, WEBP, Content, ShapingError, sniff

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
    from accord.shaping.images import ImageFile  # noqa: PLC0415

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


MAX_PIXELS: Final = 50_000_000

_FORMATS: Final = {JPEG: "JPEG", PNG: "PNG", WEBP: "WEBP"}
_MODES: Final = {
    JPEG: ("L", "RGB", "CMYK"),
    PNG: ("L", "LA", "I;16", "I", "RGB", "RGBA"),
    WEBP: ("RGB", "RGBA"),
}
# Metadata besides EXIF, most important first.
_METADATA: Final = {
    JPEG: ("icc_profile", "comment", "xmp"),
    PNG: ("icc_profile",),
    WEBP: ("icc_profile", "xmp"),
}
_PALETTE: Final = ("P", "PA")
# Sum of the JPEG standard's luminance table, from which encoders derive theirs by quality.
_STANDARD_SUM: Final = 3_688
_JPEG_TABLES: Final = 620
_UNKNOWN_QUALITY: Final = 85
_ORIENTATION: Final = 0x0112
_TIME: Final = 0x0132
_POSITION: Final = 0x8825
_MAX_MARKER: Final = 65_000  # fits into one JPEG segment, with its framing


class ImageFile:
    """An encoded image that can be re-encoded at another scale and quality."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.content_type = sniff(payload[:HEAD])
        if not self.content_type:
            raise ShapingError("expected a JPEG, PNG or WebP image")
        self._format = _FORMATS[self.content_type]
        self._image = self._open()
        self.width, self.height = self._image.size
        if self.pixels > MAX_PIXELS:
            raise ShapingError(
                f"an image of {self.width} x {self.height} pixels, at most {MAX_PIXELS} accepted"
            )
        self.quality = self._estimate_quality()
        self._pixels: Image.Image | None = None
        self._scaled: tuple[tuple[int, int], Image.Image] | None = None
        self._metadata: dict[str, Any] = {}
        self._is_palette = self._image.mode in _PALETTE

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def overhead(self) -> int:
        """Bytes besides pixels."""
        metadata = sum(map(len, self._metadata.values()))
        return metadata + (_JPEG_TABLES if self.content_type == JPEG else 0)

    def _open(self) -> Image.Image:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # size warnings: the caller checks sizes
                return Image.open(BytesIO(self.payload), formats=[self._format])
        except UnidentifiedImageError:
            raise ShapingError(f"a broken {self._format} image") from None
        except Exception as error:
            raise ShapingError(f"a broken {self._format} image: {_error_text(error)}") from error

    def load(self, scale: float) -> None:
        """Decode at `scale` of the size or more."""
        try:
            # A hostile file can make Pillow warn; that must not reach a log.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if self.content_type == JPEG:
                    # Rounding up would decode more than needed.
                    size = max(1, int(self.width * scale)), max(1, int(self.height * scale))
                    self._image.draft(self._image.mode, size)
                self._image.load()
                self._pixels = self._plain(self._image)
        except ShapingError:
            raise
        except MemoryError:
            raise ShapingError("an image that needs more memory than shaping may use") from None
        except Exception as error:
            raise ShapingError(f"a broken {self._format} image: {_error_text(error)}") from error

    def encode(self, scale: float, quality: int) -> bytes:
        """The image at `scale` of its size, or as loaded if that is smaller."""
        try:
            return self._encode(self._resized(scale), quality)
        except MemoryError:
            raise ShapingError("an image that needs more memory than shaping may use") from None
        except Exception as error:
            raise ShapingError(f"{self._format} can't be written: {_error_text(error)}") from error

    def keep_metadata_within(self, max_bytes: int) -> None:
        """Keep as much metadata as fits into `max_bytes`."""
        max_bytes = min(max_bytes, _MAX_MARKER)
        exif = self._exif(max_bytes)
        self._metadata = {"exif": exif} if exif else {}
        max_bytes -= len(exif)
        for name in _METADATA[self.content_type]:
            octets = self._image.info.get(name)
            if isinstance(octets, bytes) and 0 < len(octets) <= max_bytes:
                self._metadata[name] = octets
                max_bytes -= len(octets)

    def _exif(self, max_bytes: int) -> bytes:
        """EXIF without its preview; if too large, the essential tags, or just the orientation."""
        try:
            found = self._image.getexif()
            if not found:
                return b""
            short, shortest = Image.Exif(), Image.Exif()
            for tag in (_ORIENTATION, _TIME):
                if tag in found:
                    short[tag] = found[tag]
            if position := found.get_ifd(_POSITION):
                short[_POSITION] = position
            for exif in (found, short):
                octets = exif.tobytes()
                if len(octets) <= max_bytes:
                    return octets
            shortest[_ORIENTATION] = int(found.get(_ORIENTATION, 1))
            return shortest.tobytes()
        except Exception:  # broken EXIF data is no reason to abandon the image
            return b""

    def _plain(self, image: Image.Image) -> Image.Image:
        """Converts to a mode that can be scaled and written."""
        if "transparency" in image.info:
            image = image.convert("RGBA")
            image.info.pop("transparency", None)
        elif image.mode in _PALETTE:
            image = image.convert("RGBA" if image.mode == "PA" else "RGB")
        elif image.mode == "1":
            image = image.convert("L")
        if image.mode not in _MODES[self.content_type]:
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        return image

    def _resized(self, scale: float) -> Image.Image:
        assert self._pixels is not None, "loaded before it is encoded"
        wanted = max(1, int(self.width * scale)), max(1, int(self.height * scale))
        if wanted[0] >= self._pixels.width and wanted[1] >= self._pixels.height:
            return self._pixels
        if self._scaled is None or self._scaled[0] != wanted:
            resized = self._pixels.resize(wanted, Image.Resampling.BICUBIC, reducing_gap=2.0)
            self._scaled = wanted, resized
        return self._scaled[1]

    def _encode(self, image: Image.Image, quality: int) -> bytes:
        sink = BytesIO()
        options: dict[str, Any] = dict(self._metadata)
        if self.content_type == PNG:
            if self._is_palette:
                method = Image.Quantize.FASTOCTREE if image.mode == "RGBA" else None
                image = image.quantize(256, method=method)
            options.setdefault("icc_profile", None)
        elif self.content_type == WEBP:
            options |= {
                "quality": quality,
                "method": 1,
            }  # other methods take twice as long for no gain
        else:
            options.setdefault("comment", None)
            options["quality"] = quality
        image.save(sink, self._format, **options)
        return sink.getvalue()

    def _estimate_quality(self) -> int:
        """Estimates a JPEG's quality from its first quantisation table."""
        tables: dict[int, list[int]] | None = getattr(self._image, "quantization", None)
        if not tables or 0 not in tables:
            return _UNKNOWN_QUALITY
        percent = max(1, 100 * sum(tables[0]) // _STANDARD_SUM)
        quality = 5_000 // percent if percent > 100 else (200 - percent) // 2
        return max(1, min(100, quality))


def _error_text(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]
